package cassette

import (
	"errors"
	"fmt"
	"strings"
)

// Mode is what a tape does with a request. Recording always needs LLMQ_CASSETTE=record in the
// environment as well, and is refused where CI is set: a test that forgot a recording shall fail
// there, and not pay (SECURITY-DESIGN CS2).
type Mode int

const (
	// Replay plays; a request without a recording is a miss. The folder must exist.
	Replay Mode = iota
	// Auto plays what is recorded. The rest is recorded under LLMQ_CASSETTE=record, and a miss
	// otherwise.
	Auto
	// Record asks the provider every time and adds a recording. It replaces none: to record anew,
	// remove the files first. Without LLMQ_CASSETTE=record it is refused.
	Record
)

// EnvMode is the variable that allows recording; for processes it also names the mode.
const EnvMode = "LLMQ_CASSETTE"

// String is the mode's name, as EnvMode has it.
func (m Mode) String() string {
	switch m {
	case Replay:
		return "replay"
	case Auto:
		return "auto"
	case Record:
		return "record"
	}
	return fmt.Sprintf("mode %d", int(m))
}

// ParseMode reads a mode's name: replay, auto or record.
func ParseMode(s string) (Mode, error) {
	for _, m := range []Mode{Replay, Auto, Record} {
		if s == m.String() {
			return m, nil
		}
	}
	return Replay, fmt.Errorf("cassette: %q is no mode; they are replay, auto and record", s)
}

// CheckEnv refuses an environment that asks for recording in CI. Whoever starts processes with an
// environment of their own should check the one that they were started with.
func CheckEnv(env []string) error {
	if lookup(env, EnvMode) == Record.String() && lookup(env, "CI") != "" {
		return errors.New("cassette: " + EnvMode + "=record is refused where CI is set: record on your own machine and commit the files")
	}
	return nil
}

// recording says whether m may record in env.
func (m Mode) recording(env []string) (bool, error) {
	asked := lookup(env, EnvMode) == Record.String()
	switch m {
	case Replay:
		return false, nil
	case Auto:
	case Record:
		if !asked {
			return false, errors.New("mode record needs " + EnvMode + "=record in the environment")
		}
	default:
		return false, fmt.Errorf("unknown %v", m)
	}
	return asked, CheckEnv(env)
}

func lookup(env []string, name string) string {
	value := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v // the last one counts, as in a shell
		}
	}
	return value
}
