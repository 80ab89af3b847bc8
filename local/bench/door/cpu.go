package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// cpu is processor time, user's and system's.
type cpu struct{ process, valkey time.Duration }

// processor reads what this process and Valkey have used so far.
func processor(ctx context.Context, store *redis.Client) (cpu, error) {
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return cpu{}, fmt.Errorf("processor time: %w", os.NewSyscallError("getrusage", err))
	}
	c := cpu{process: time.Duration(own.Utime.Nano() + own.Stime.Nano())}
	info, err := store.Info(ctx, "cpu").Result()
	if err != nil {
		return cpu{}, fmt.Errorf("processor time of Valkey: %w", err)
	}
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if name != "used_cpu_user" && name != "used_cpu_sys" {
			continue
		}
		s, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return cpu{}, fmt.Errorf("processor time of Valkey: %s: %w", name, err)
		}
		c.valkey += time.Duration(s * float64(time.Second))
	}
	return c, nil
}
