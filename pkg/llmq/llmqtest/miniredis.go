// Package llmqtest is the kit that llmq's own tests, and those of its users, are written with. It
// imports testing, so nothing that is deployed may import it.
package llmqtest

import (
	"bufio"
	"bytes"
	"crypto/sha1" // Valkey names scripts by SHA-1; nothing is protected by it here.
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// NewMiniredis returns a miniredis that is reached only through its Dial method, on an in-memory
// pipe, so it works inside a [testing/synctest] bubble; there is no address to connect to. TTLs
// follow the bubble's clock (outside a bubble, real time), and scripts may begin with `#!lua` as
// [HookLua] says. It is closed by t.Cleanup: inside a bubble, pass the bubble's t and close every
// client before the bubble's function returns.
//
// Each database access walks all keys that have a TTL, so this is for tests, not for load.
func NewMiniredis(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	m := miniredis.NewMiniRedis()
	// The first Dial creates the server, without a listener; there is nothing to hook before.
	conn, err := m.Dial()
	if err != nil {
		t.Fatalf("start miniredis on a pipe: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Fatalf("close the first connection to miniredis: %v", err)
	}
	t.Cleanup(m.Close)
	m.ClockTTL(true)
	HookLua(m)
	return m
}

// StartMiniredis is [NewMiniredis] on a free loopback port, for what needs an address (a client in
// another process, a ClusterClient that asks CLUSTER SLOTS). Never use it inside a bubble: a real
// socket keeps the bubble's clock from moving.
func StartMiniredis(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		t.Fatalf("start miniredis: %v", err)
	}
	t.Cleanup(m.Close)
	m.ClockTTL(true)
	HookLua(m)
	return m
}

// HookLua makes a started miniredis run scripts that begin with `#!lua`, as Valkey does, so that
// product code sends one and the same text to both. Real servers need that line, because only with
// it do they refuse keys of another slot; miniredis takes it for a syntax error.
//
// The hook turns the line into a Lua comment of the same length, so error line numbers still hold,
// and translates the SHA-1 of the original text in EVALSHA, SCRIPT EXISTS and the reply of SCRIPT
// LOAD. It refuses a malformed line, an unknown engine, option or flag with Valkey 8's words, runs
// `flags=no-writes` scripts read-only, and keeps the *_RO commands from any other. It does not
// check slots: test that on a real server in cluster mode.
//
// It takes the server's only pre-hook: SetPreHook and SetError replace it, and a Restart drops it.
// A SCRIPT LOAD queued in MULTI answers, on EXEC, the SHA-1 of the rewritten text (which EVALSHA
// takes too). HookLua panics if m has not been started.
func HookLua(m *miniredis.Miniredis) {
	s := m.Server()
	if s == nil {
		panic("llmqtest: HookLua needs a miniredis that has been started")
	}
	h := &luaHook{server: s, known: map[string]script{}}
	s.SetPreHook(h.before)
}

// script is what the hook knows of a text that began with `#!lua`.
type script struct {
	text     string // as miniredis gets it
	sha      string // SHA-1 of text
	readOnly bool   // flags=no-writes
}

type luaHook struct {
	server *server.Server

	mu    sync.Mutex
	known map[string]script // by the SHA-1 of the original text; guarded by mu
}

// before sees every command ahead of miniredis. It returns true when it has answered.
func (h *luaHook) before(peer *server.Peer, cmd string, args ...string) bool {
	switch cmd {
	case "EVAL", "EVAL_RO":
		return len(args) > 0 && h.eval(peer, cmd, args)
	case "EVALSHA", "EVALSHA_RO":
		return len(args) > 0 && h.evalSHA(peer, cmd, args)
	case "SCRIPT":
		return len(args) > 0 && h.script(peer, args)
	default:
		return false
	}
}

func (h *luaHook) eval(peer *server.Peer, cmd string, args []string) bool {
	s, _, found, err := h.learn(args[0])
	if err != nil {
		peer.WriteError("ERR " + err.Error())
		return true
	}
	if !found {
		return false
	}
	return h.run(peer, cmd, "EVAL", s, s.text, args[1:])
}

func (h *luaHook) evalSHA(peer *server.Peer, cmd string, args []string) bool {
	s, found := h.lookup(args[0])
	if !found {
		return false
	}
	return h.run(peer, cmd, "EVALSHA", s, s.sha, args[1:])
}

// run dispatches the translated command, by its _RO form if the script promised not to write.
func (h *luaHook) run(peer *server.Peer, cmd, base string, s script, first string, rest []string) bool {
	if strings.HasSuffix(cmd, "_RO") && !s.readOnly {
		peer.WriteError("ERR Can not execute a script with write flag using *_ro command.")
		return true
	}
	if s.readOnly {
		base += "_RO"
	}
	h.server.Dispatch(peer, append([]string{base, first}, rest...))
	return true
}

func (h *luaHook) script(peer *server.Peer, args []string) bool {
	switch strings.ToUpper(args[0]) {
	case "LOAD":
		if len(args) != 2 {
			return false
		}
		s, original, found, err := h.learn(args[1])
		if err != nil {
			peer.WriteError("ERR " + err.Error())
			return true
		}
		if !found {
			return false
		}
		h.load(peer, s, original)
		return true
	case "EXISTS":
		translated := append([]string{"SCRIPT"}, args...)
		changed := false
		for i, sha := range args[1:] {
			if s, found := h.lookup(sha); found {
				translated[i+2] = s.sha
				changed = true
			}
		}
		if changed { // the second pass finds nothing to translate, so this ends
			h.server.Dispatch(peer, translated)
		}
		return changed
	default:
		return false
	}
}

// load runs SCRIPT LOAD on a peer that writes to memory, and passes its reply on with the SHA-1 of
// the original text in place of that of the rewritten one. An error, or QUEUED, passes as it is.
func (h *luaHook) load(peer *server.Peer, s script, original string) {
	var reply bytes.Buffer
	capture := server.NewPeer(bufio.NewWriter(&reply))
	capture.Ctx = peer.Ctx // who is authenticated, and whether in MULTI, lives there
	h.server.Dispatch(capture, []string{"SCRIPT", "LOAD", s.text})
	capture.Flush()
	peer.Ctx = capture.Ctx
	peer.WriteRaw(strings.Replace(reply.String(), s.sha, original, 1))
}

// learn rewrites a text that begins with a shebang and remembers it under its SHA-1, which it
// returns. A text without one is not found.
func (h *luaHook) learn(text string) (s script, original string, found bool, err error) {
	if !strings.HasPrefix(text, "#!") {
		return script{}, "", false, nil
	}
	readOnly, err := parseShebang(text)
	if err != nil {
		return script{}, "", false, err
	}
	rewritten := "--" + text[len("#!"):]
	s = script{text: rewritten, sha: sha1Hex(rewritten), readOnly: readOnly}
	original = sha1Hex(text)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known[original] = s
	return s, original, true, nil
}

func (h *luaHook) lookup(sha string) (script, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, found := h.known[strings.ToLower(sha)]
	return s, found
}

// parseShebang reads `#!lua [flags=a,b]` and says whether it promises not to write. Its errors are
// Valkey 8.0.1's, measured.
func parseShebang(text string) (readOnly bool, err error) {
	line, _, ended := strings.Cut(text, "\n")
	if !ended {
		return false, errors.New("Invalid script shebang") //nolint:staticcheck // the server's own words
	}
	words := strings.Fields(line)
	if words[0] != "#!lua" {
		return false, fmt.Errorf("Unexpected engine in script shebang: %s", words[0]) //nolint:staticcheck // the server's own words
	}
	for _, option := range words[1:] {
		flags, isFlags := strings.CutPrefix(option, "flags=")
		if !isFlags {
			return false, fmt.Errorf("Unknown lua shebang option: %s", option) //nolint:staticcheck // the server's own words
		}
		for flag := range strings.SplitSeq(flags, ",") {
			switch flag {
			case "no-writes":
				readOnly = true
			case "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys":
				// No effect here: miniredis has no memory limit, no replicas and no slots.
			default:
				return false, fmt.Errorf("Unexpected flag in script shebang: %s", flag) //nolint:staticcheck // the server's own words
			}
		}
	}
	return readOnly, nil
}

func sha1Hex(s string) string {
	sum := sha1.Sum([]byte(s)) // the server's name for a script, not a protection
	return hex.EncodeToString(sum[:])
}
