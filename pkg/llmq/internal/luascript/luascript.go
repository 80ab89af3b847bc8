// Package luascript runs the embedded Valkey scripts: by digest, several in one
// round trip, with the text sent again only where the server does not know it.
package luascript

import (
	"context"
	"crypto/sha1" //nolint:gosec // the server names scripts by their SHA-1; nothing rests on its strength
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Script is one embedded script. It is immutable.
type Script struct{ name, text, sha string }

// New wraps a script's text. It panics when the text is empty or does not begin with
// "#!lua", without which Valkey lets a script touch undeclared keys of other slots.
func New(name, text string) Script {
	if !strings.HasPrefix(text, "#!lua") {
		panic("luascript: " + name + " does not begin with #!lua")
	}
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return Script{name: name, text: text, sha: hex.EncodeToString(sum[:])}
}

// Text is the script as it is sent.
func (s Script) Text() string { return s.text }

// Batch collects commands that go to the server in one round trip (one per node
// where the keys lie on several). Effects are independent: one may fail while the
// others hold, and a script that the server did not know runs after all the others, so
// only plain commands of one slot have an order. A Batch is used once, by one goroutine.
type Batch struct{ calls []*Call }

// Call is one command of a batch; its fields are valid after [Batch.Run].
type Call struct {
	script *Script
	args   []any // whole command for a plain one; keys and arguments for a script
	keys   []string
	cmd    *redis.Cmd
}

// Script adds a script. It panics on a zero one: a script that was never embedded would
// run as an empty text and answer nothing.
func (b *Batch) Script(s *Script, keys []string, args ...any) *Call {
	if s.text == "" {
		panic("luascript: a zero Script")
	}
	c := &Call{script: s, keys: keys, args: args}
	b.calls = append(b.calls, c)
	return c
}

// Command adds a plain command.
func (b *Batch) Command(args ...any) *Call {
	c := &Call{args: args}
	b.calls = append(b.calls, c)
	return c
}

// Run sends the batch. It returns an error, [llmq.CodeQueueUnavailable], when a
// command failed in transport; answers of the server, errors among them, are each
// Call's own. On NOSCRIPT the text is sent in a second round trip, once per server.
func (b *Batch) Run(ctx context.Context, client redis.UniversalClient) error {
	if err := exec(ctx, client, b.calls, false); err != nil {
		return err
	}
	var unknown []*Call
	for _, c := range b.calls {
		if c.script != nil && redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT") {
			unknown = append(unknown, c)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return exec(ctx, client, unknown, true)
}

func exec(ctx context.Context, client redis.UniversalClient, calls []*Call, text bool) error {
	send := func(p redis.Pipeliner) {
		for _, c := range calls {
			switch {
			case c.script == nil:
				c.cmd = p.Do(ctx, c.args...)
			case text:
				c.cmd = p.Eval(ctx, c.script.text, c.keys, c.args...)
			default:
				c.cmd = p.EvalSha(ctx, c.script.sha, c.keys, c.args...)
			}
		}
	}
	pipe := client.Pipeline()
	send(pipe)
	_, _ = pipe.Exec(ctx) // it repeats the first command's error; each is looked at below
	for _, c := range calls {
		if err := c.cmd.Err(); err != nil && !isAnswer(err) {
			return llmq.Errorf(llmq.CodeQueueUnavailable, "the state store can't be reached").Because(err)
		}
	}
	return nil
}

// isAnswer tells a server's own answer from a transport's failure: only the latter
// leaves open whether the command took effect.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// Ints is a script's answer: a flat array of integers.
func (c *Call) Ints(want int) ([]int64, error) {
	v, err := c.cmd.Int64Slice()
	if err != nil {
		return nil, c.explain(err)
	}
	if len(v) < want {
		return nil, c.explain(fmt.Errorf("answered %d integers, want %d", len(v), want))
	}
	return v, nil
}

// Text is a command's answer as a string, and false where there is none.
func (c *Call) Text() (string, bool, error) {
	s, err := c.cmd.Text()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	if err != nil {
		return "", false, c.explain(err)
	}
	return s, true, nil
}

// Int is a command's answer as an integer.
func (c *Call) Int() (int64, error) {
	n, err := c.cmd.Int64()
	if err != nil {
		return 0, c.explain(err)
	}
	return n, nil
}

// Map is a hash command's answer.
func (c *Call) Map() (map[string]string, error) {
	switch v := c.cmd.Val().(type) {
	case map[any]any:
		m := make(map[string]string, len(v))
		for k, x := range v {
			m[fmt.Sprint(k)] = fmt.Sprint(x)
		}
		return m, nil
	case []any:
		m := make(map[string]string, len(v)/2)
		for i := 0; i+1 < len(v); i += 2 {
			m[fmt.Sprint(v[i])] = fmt.Sprint(v[i+1])
		}
		return m, nil
	}
	err := c.cmd.Err()
	if err == nil {
		err = errors.New("answer is no map")
	}
	return nil, c.explain(err)
}

// explain makes a server's answer an [llmq.Error]: of the answers of a server that can't
// serve now the caller may repeat its request, of any other he may not.
func (c *Call) explain(err error) error {
	err = fmt.Errorf("%s: %w", c.name(), err)
	for _, prefix := range []string{"LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "READONLY", "OOM", "BUSY", "MISCONF", "NOREPLICAS", "max number of clients"} {
		if redis.HasErrorPrefix(err, prefix) {
			return llmq.Errorf(llmq.CodeQueueUnavailable, "the state store can't serve now").Because(err)
		}
	}
	return llmq.Errorf(llmq.CodeInternal, "the state store refused a command").Because(err)
}

func (c *Call) name() string {
	if c.script != nil {
		return c.script.name
	}
	return fmt.Sprint(c.args[0])
}

// Pending reads one answer of a batch that has run. Before [Batch.Run] it must not
// be called.
type Pending[T any] func() (T, error)

// Include makes a script of its text and the chunks that its lines "-- include NAME" ask for,
// each at its own line. It panics on a name that parts lacks.
func Include(text string, parts map[string]string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		name, asks := strings.CutPrefix(strings.TrimSpace(line), "-- include ")
		if !asks {
			b.WriteString(line)
			continue
		}
		part, ok := parts[name]
		if !ok {
			panic("luascript: no part is named " + name)
		}
		b.WriteString(part)
	}
	return b.String()
}
