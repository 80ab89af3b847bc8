package rig_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/rig"
)

var (
	functions cloud.Functions // built once, for every rig of this package
	used      atomic.Bool     // whether shared has been started
	shared    = sync.OnceValues(func() (*rig.Rig, error) {
		used.Store(true)
		return start(rig.Options{})
	})
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	if os.Getenv(asProgram) != "" {
		if err := programMain(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	dir, err := os.MkdirTemp("", "llmq-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) // the system's temp folder
	// Programs that run here ask only the local cloud, as its one known producer; the keys of whoever tests stay out of it.
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": cloud.Producer, "AWS_SECRET_ACCESS_KEY": "local", "AWS_SESSION_TOKEN": ""} {
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if functions, err = cloud.Build(context.Background(), dir, jobPackages); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code = m.Run()
	if used.Load() {
		if r, err := shared(); err == nil {
			if err := stop(r); err != nil {
				fmt.Fprintln(os.Stderr, "close:", err)
				code = 1
			}
		}
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

func start(o rig.Options) (*rig.Rig, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o.Functions = functions
	o.Output = os.Stderr
	return rig.Start(ctx, o)
}

func stop(r *rig.Rig) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return r.Close(ctx)
}

// theRig is one local cloud for the tests that leave it as they found it.
func theRig(t *testing.T) *rig.Rig {
	t.Helper()
	r, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ownRig is a local cloud for one test.
func ownRig(t *testing.T, o rig.Options) *rig.Rig {
	t.Helper()
	r, err := start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(r); err != nil {
			t.Error(err)
		}
	})
	return r
}
