package lambda

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// FunctionConfig describes a function. All fields but Dir, Env, Concurrency, Handler and Async are required.
type FunctionConfig struct {
	Name        string
	Bootstrap   string        // path of the binary; made absolute by Create
	Dir         string        // working directory and LAMBDA_TASK_ROOT; empty: the folder of Bootstrap
	Env         []string      // KEY=value, at most 4 KB in all; the only variables besides those Lambda sets
	Timeout     time.Duration // of one invocation, 1s to 900s
	MemoryMB    int           // 128 to 10240; told to the function, not enforced
	Concurrency int           // reserved: invocations at once; 0: it shares what no function has reserved
	Handler     string        // _HANDLER; empty: "bootstrap"
	Async       AsyncConfig   // of events that are invoked asynchronously
}

// normalize fills what may be left out and reports every fault of a configuration.
func normalize(cfg FunctionConfig) (FunctionConfig, error) {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`).MatchString(cfg.Name), "name %q is not 1 to 64 letters, digits, - or _", cfg.Name)
	check(cfg.Timeout >= time.Second && cfg.Timeout <= maxTimeout, "timeout %v is not within 1s and %v", cfg.Timeout, maxTimeout)
	check(cfg.MemoryMB >= 128 && cfg.MemoryMB <= 10240, "memory of %d MB is not within 128 and 10240", cfg.MemoryMB)
	check(cfg.Concurrency >= 0, "concurrency %d is below 0", cfg.Concurrency)
	check(cfg.Async.MaxAge == 0 || cfg.Async.MaxAge >= time.Minute && cfg.Async.MaxAge <= maxEventAge,
		"event age %v is not within 1m and %v", cfg.Async.MaxAge, maxEventAge)
	if err := checkEnv(cfg.Env); err != nil {
		faults = append(faults, err)
	}
	if path, err := filepath.Abs(cfg.Bootstrap); err != nil {
		faults = append(faults, fmt.Errorf("find bootstrap: %w", err))
	} else {
		cfg.Bootstrap = path
	}
	info, err := os.Stat(cfg.Bootstrap)
	if err != nil {
		faults = append(faults, fmt.Errorf("find bootstrap: %w", err))
	} else {
		check(info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0, "bootstrap %s is not an executable file", cfg.Bootstrap)
	}
	if cfg.Dir == "" {
		cfg.Dir = filepath.Dir(cfg.Bootstrap)
	}
	if cfg.Handler == "" {
		cfg.Handler = "bootstrap"
	}
	if cfg.Async.MaxAge == 0 {
		cfg.Async.MaxAge = maxEventAge
	}
	return cfg, errors.Join(faults...)
}
