package rig

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/llm-queue/llmq/pkg/llmq/provider/cassette"
)

const (
	cassetteDir  = "LLMQ_CASSETTE_DIR"
	cassetteTag  = "llmq_cassette" // the build tag that links cassettes
	recordFolder = 0o700           // prompts lie there
)

// tape is what the environment says of cassettes.
type tape struct {
	mode string // "" is none
	dir  string // absolute
	note string // for people
}

// plays reports whether providers are not to be asked.
func (t tape) plays() bool { return t.mode != "" && t.mode != "record" }

// findTape checks all that could be wrong with cassettes before anything is built or
// started: else it would show only in the log of a function that can't start.
func findTape(env []string) (tape, error) {
	t := tape{mode: lookup(env, cassette.EnvMode)}
	if t.mode == "" {
		return t, nil
	}
	mode, err := cassette.ParseMode(t.mode)
	if err != nil {
		return t, fmt.Errorf("%s is %q: use record, replay or auto", cassette.EnvMode, t.mode)
	}
	if err := cassette.CheckEnv(env); err != nil {
		return t, err
	}
	dir := lookup(env, cassetteDir)
	if dir == "" {
		return t, fmt.Errorf("%s is %s, but no folder is named: set %s", cassette.EnvMode, t.mode, cassetteDir)
	}
	if t.dir, err = filepath.Abs(dir); err != nil { // functions run in folders of their own
		return t, fmt.Errorf("%s: %w", cassetteDir, err)
	}
	if !t.plays() {
		t.note = "recording into " + t.dir
		return t, writable(t.dir)
	}
	played, err := cassette.New(cassette.Options{Dir: t.dir, Mode: mode, Env: env, AnyLoopbackPort: true})
	if err != nil {
		return t, fmt.Errorf("%s: %w", cassetteDir, err)
	}
	n := len(played.Unplayed())
	if n == 0 {
		return t, fmt.Errorf("%s: %s holds no recordings: make some with %s=record", cassetteDir, t.dir, cassette.EnvMode)
	}
	t.note = fmt.Sprintf("playing %d recordings of %s; no provider is asked", n, t.dir)
	return t, played.Close()
}

// writable sees to it that recordings can be written: what can't be written is paid for
// all the same.
func writable(dir string) error {
	if err := os.MkdirAll(dir, recordFolder); err != nil {
		return fmt.Errorf("%s: %w", cassetteDir, err)
	}
	probe, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return fmt.Errorf("%s: recordings can't be written: %w", cassetteDir, err)
	}
	_ = probe.Close() // nothing was written
	if err := os.Remove(probe.Name()); err != nil {
		return fmt.Errorf("%s: %w", cassetteDir, err)
	}
	return nil
}
