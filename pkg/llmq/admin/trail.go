package admin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
)

// Trail records what operators do (SECURITY-DESIGN KT7): in the log, and for good as an object that is never written again.
type Trail struct {
	Log     *slog.Logger
	Objects Objects // nil: there is no state bucket, and nothing is recorded for good
}

// Objects keeps records. Put with the version "" writes a new object, and fails where there is one of that name.
type Objects interface {
	Put(ctx context.Context, key string, body []byte, version string) error
}

// ErrUnrecorded says that what was asked for is done, and only its record is missing. What the verb returns beside it holds.
var ErrUnrecorded = errors.New("the change was made, but no record of it was written")

// deed is what an operator did, or tried. It names queues, models, keys' ids and counts, never what a message or a secret holds.
type deed struct {
	by, verb      string
	args          []any // names and values by turns
	before, after any   // what it changed; nil where args say it
}

// record is a deed as it lies in the bucket. docs/OPERATE.md tells how it is read.
type record struct {
	V       int             `json:"v"`
	At      time.Time       `json:"at"`
	By      string          `json:"by"`
	Verb    string          `json:"verb"`
	Code    llmq.Code       `json:"code,omitempty"` // of a failure whose effect is not known; "" is done
	Details json.RawMessage `json:"details,omitempty"`
	Before  json.RawMessage `json:"before,omitempty"`
	After   json.RawMessage `json:"after,omitempty"`
}

const (
	// recordWithin bounds the writing of a record.
	recordWithin = 2 * time.Second
	// maxPart bounds each of a record's three parts; a longer one becomes a text, cut off.
	maxPart = 8 << 10
)

// record logs a deed, whoever was refused included, and writes what changed something, or may have, to the bucket. It returns how the verb
// ends: as err says, or where that is nil and the record is missing, as [ErrUnrecorded].
func (t Trail) record(ctx context.Context, d deed, err error) error {
	d.log(ctx, t.Log, err)
	r := record{V: 1, At: time.Now().UTC().Truncate(time.Millisecond), By: d.by, Verb: d.verb}
	if err != nil {
		if r.Code = llmq.AsError(err).Code; r.Code.Info().Status < http.StatusInternalServerError {
			return err // refused: nothing is changed
		}
	}
	if missing := t.put(ctx, d, r); missing != nil {
		t.Log.ErrorContext(ctx, "operator_verb_unrecorded", "by", d.by, "verb", d.verb, "error", missing)
		if err == nil {
			return fmt.Errorf("%w: %w", ErrUnrecorded, missing)
		}
	}
	return err
}

func (t Trail) put(ctx context.Context, d deed, r record) error {
	if t.Objects == nil {
		return errors.New("there is no state bucket")
	}
	details := map[string]any{}
	for i := 0; i+1 < len(d.args); i += 2 {
		details[d.args[i].(string)] = d.args[i+1] //nolint:forcetypeassert // a programmer's fault
	}
	var faults [3]error
	r.Details, faults[0] = bounded(details)
	r.Before, faults[1] = bounded(d.before)
	r.After, faults[2] = bounded(d.after)
	body, err := json.Marshal(r)
	if err = errors.Join(append(faults[:], err)...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin) // it is done, whether or not its operator waits
	defer cancel()
	name := "audit/" + r.At.Format("2006/01/02/150405.000") + "-" + strings.ReplaceAll(r.Verb, " ", "-") + "-" + strings.ToLower(rand.Text()[:8]) + ".json"
	return t.Objects.Put(ctx, name, []byte(auth.Redact(string(body))), "")
}

// bounded is a part of a record.
func bounded(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	b, err := json.Marshal(v)
	if err == nil && len(b) > maxPart {
		b, err = json.Marshal(llmq.Clip(string(b), maxPart))
	}
	return b, err
}

// log writes a deed to the log.
func (d deed) log(ctx context.Context, log *slog.Logger, err error) {
	args := append([]any{"by", d.by, "verb", d.verb}, d.args...)
	for i, a := range args {
		if s, is := a.(string); is { // what was asked for may be a key that was pasted in the wrong place (KT2)
			args[i] = auth.Redact(s)
		}
	}
	if err == nil {
		log.InfoContext(ctx, "operator_verb", args...)
		return
	}
	e := llmq.AsError(err)
	args = append(args, "code", string(e.Code), "error", auth.Redact(e.Message))
	if e.Err != nil {
		args = append(args, "cause", auth.Redact(e.Err.Error()))
	}
	log.WarnContext(ctx, "operator_verb_failed", args...)
}
