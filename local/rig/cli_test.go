package rig_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/beacon"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq/awscost"
)

// cli is the built command line, which finds a rig by itself.
type cli struct {
	t       *testing.T
	bin     string
	runtime string // XDG_RUNTIME_DIR
}

func newCLI(t *testing.T, r *rig.Rig) cli {
	t.Helper()
	c := cli{t: t, bin: filepath.Join(t.TempDir(), "llmq"), runtime: t.TempDir()}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", "lambda.norpc", "-buildvcs=false", "-o", c.bin, "../../cmd/llmq")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // what is in the build cache
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	out, err := beacon.Light(c.runtime, beacon.Cloud{URL: r.URL, Key: r.Key, AdminURL: r.AdminURL, AdminKey: r.AdminKey, CountsURL: r.CountsURL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := out(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// run runs it in a pipe, and reads its JSON into out; nil is none. It returns what it wrote.
func (c cli) run(code int, out any, args ...string) (stdout, stderr string) {
	c.t.Helper()
	return c.as(nil, code, out, args...)
}

func (c cli) as(env []string, code int, out any, args ...string) (stdout, stderr string) {
	c.t.Helper()
	cmd := exec.CommandContext(within(c.t, 40*time.Second), c.bin, args...)
	cmd.Env = append([]string{"XDG_RUNTIME_DIR=" + c.runtime, "HOME=" + c.runtime}, env...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok || ok && exit.ExitCode() != code || err == nil && code != 0 {
		c.t.Fatalf("llmq %v: %v, want exit code %d\n%s%s", args, err, code, o.String(), e.String())
	}
	if strings.Contains(o.String()+e.String(), "\x1b") {
		c.t.Errorf("llmq %v: an escape in a pipe: %q", args, o.String()+e.String())
	}
	if out != nil {
		if err := json.Unmarshal(o.Bytes(), out); err != nil {
			c.t.Fatalf("llmq %v: %v\n%s%s", args, err, o.String(), e.String())
		}
	}
	return o.String(), e.String()
}

// E5: the command line against the real functions, told nothing: status, queues, a key from its making to its end, calls on every
// wire with it, a dry run, and what all that would cost.
func TestCLI_OperatesARealCloud(t *testing.T) {
	t.Parallel()
	c := newCLI(t, theRig(t))
	var status struct{ Queues, Targets, Sources []map[string]any }
	if c.run(0, &status, "status"); len(status.Queues) == 0 || len(status.Targets) == 0 || len(status.Sources) != len(status.Queues) {
		t.Errorf("status = %+v", status)
	}
	var queues struct{ Queues []struct{ Queue string } }
	if c.run(0, &queues, "queues"); len(queues.Queues) != len(status.Queues) {
		t.Errorf("queues = %+v", queues)
	}
	var dry struct {
		Done   bool
		DryRun bool `json:"dry_run"`
	}
	if c.run(0, &dry, "queues", "redrive", "llm-"+rig.ModelChat, "--dry-run"); !dry.Done || !dry.DryRun {
		t.Errorf("dry run = %+v", dry)
	}
	if _, told := c.run(1, nil, "queues", "pause", "llm-nobody"); !strings.Contains(told, "llmq queues lists them") {
		t.Errorf("an unknown queue: %s", told)
	}

	secret, _ := c.run(0, nil, "keys", "create", "--tenant", "cli", "--models", strings.Join([]string{rig.ModelChat, rig.ModelConverse, rig.ModelEmbed}, ","), "--quiet")
	mine := []string{"OPENAI_API_KEY=" + strings.TrimSpace(secret), "OPENAI_BASE_URL=" + theRig(t).URL + "/v1"}
	kid := strings.Split(secret, "_")[2]
	for _, call := range [][]string{
		{"hello", "--model", rig.ModelChat},
		{"hello", "--model", rig.ModelConverse, "--op", "converse"},
		{"hello", "--model", rig.ModelEmbed, "--op", "embed"},
	} {
		var reply map[string]any
		if _, told := c.as(mine, 0, &reply, append([]string{"call"}, call...)...); len(reply) == 0 || !strings.Contains(told, "req_") {
			t.Errorf("call %v = %v, %s", call, reply, told)
		}
	}
	for _, call := range [][]string{{"hello", "--model", rig.ModelChat, "--stream"}, {"hello", "--model", rig.ModelConverse, "--op", "converse", "--stream"}} {
		if out, _ := c.as(mine, 0, nil, append([]string{"call"}, call...)...); strings.Count(out, "\n") < 3 {
			t.Errorf("call %v = %s", call, out)
		}
	}
	if _, told := c.as(mine, 4, nil, "call", "hello", "--model", rig.ModelChat, "--lane", "bulk"); !strings.Contains(told, "forbidden") {
		t.Errorf("a lane that the key has not: %s", told)
	}
	var left struct{ ID, State string }
	c.run(0, &left, "call", "hello", "--model", rig.ModelChat, "--submit")
	if c.run(0, &left, "request", "show", left.ID, "--wait", "30"); left.State != "done" {
		t.Errorf("left = %+v", left)
	}
	if out, _ := c.run(0, nil, "request", "result", left.ID); !strings.Contains(out, "hello") {
		t.Errorf("its result = %s", out)
	}
	if c.run(0, &left, "request", "cancel", left.ID); left.State != "done" {
		t.Errorf("cancelled late = %+v", left)
	}
	var bill struct { // F6
		Counts     awscost.Counts
		MillionUSD float64 `json:"million_usd"`
	}
	if c.run(0, &bill, "cost"); bill.Counts.Calls < 4 || bill.Counts.APIRequests < 8 || bill.Counts.SQS["SendMessage"] < 6 || bill.Counts.LogBytes == 0 || bill.MillionUSD == 0 {
		t.Errorf("cost = %+v", bill)
	}
	var set struct {
		Changed []struct{ Name, After string }
	}
	if c.run(0, &set, "settings", "set", "--model", rig.ModelEmbed, "retry_max_secs=29"); len(set.Changed) != 1 || set.Changed[0].After != "29" {
		t.Errorf("set = %+v", set)
	}
	if out, _ := c.run(0, nil, "settings", "--model", rig.ModelEmbed); !strings.Contains(out, "live:model") {
		t.Errorf("settings = %s", out)
	}
	c.run(0, nil, "settings", "unset", "--model", rig.ModelEmbed, "retry_max_secs")
	if _, told := c.run(1, nil, "settings", "set", "--model", rig.ModelEmbed, "retry_max_sec=29"); !strings.Contains(told, "did you mean retry_max_secs?") {
		t.Errorf("a misspelt setting: %s", told)
	}
	var key struct{ State string }
	if c.run(0, &key, "keys", "revoke", kid); key.State != "revoked" {
		t.Errorf("revoked = %+v", key)
	}
	if c.run(0, &key, "keys", "show", kid); key.State != "revoked" {
		t.Errorf("shown = %+v", key)
	}
	if told, _ := c.run(0, nil, "keys", "list"); strings.Contains(told, strings.TrimSpace(secret)) {
		t.Error("a list shows a secret")
	}
}
