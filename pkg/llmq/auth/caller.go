package auth

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Scope is a kind of thing that a key may do.
type Scope string

// The scopes.
const (
	ScopeCall   Scope = "call"   // make a call and wait for its reply
	ScopeSubmit Scope = "submit" // leave a call and ask for it later
	ScopeRead   Scope = "read"   // ask for results
	ScopeCancel Scope = "cancel" // cancel calls
	ScopeBatch  Scope = "batch"  // hand in files of calls
)

// Scopes lists every scope.
func Scopes() []Scope { return []Scope{ScopeCall, ScopeSubmit, ScopeRead, ScopeCancel, ScopeBatch} }

// Caller is who a request comes from. Only [Checker.Check] makes one that is somebody, and
// [Program] for a process's own calls: the zero value is nobody and may do nothing, so that a
// check that was forgotten refuses (SECURITY-DESIGN KT5).
type Caller struct{ key *Record }

// Tenant is whose requests the caller makes; "" is nobody.
func (c Caller) Tenant() string {
	if c.key == nil {
		return ""
	}
	return c.key.Tenant
}

// KeyID is the public id of the caller's key; it may be logged.
func (c Caller) KeyID() string {
	if c.key == nil {
		return ""
	}
	return c.key.KID
}

// May refuses what the key's scopes don't list. Scope "" is for what any key may do; nobody may
// not even that.
func (c Caller) May(s Scope) error {
	switch {
	case c.key == nil:
		return llmq.Errorf(llmq.CodeForbidden, "the request has no caller")
	case s != "" && !slices.Contains(c.key.Scopes, s):
		return llmq.Errorf(llmq.CodeForbidden, "the key %s lacks the scope %s; llmq keys create --scopes %s makes one that has it", c.key.KID, s, s)
	}
	return nil
}

// MayUse refuses a lane or a model that the key doesn't list. The targets are those that would serve the model:
// the key must list one of them, by itself or by its model.
func (c Caller) MayUse(l llmq.Lane, ref llmq.ModelRef, targets []llmq.Target) error {
	if c.key == nil {
		return llmq.Errorf(llmq.CodeForbidden, "the request has no caller")
	}
	if !slices.Contains(c.key.Lanes, l) {
		return llmq.Errorf(llmq.CodeForbidden, "the key %s may not use lane %s%s", c.key.KID, l, listed(c.key.Lanes)).At("lane")
	}
	if !slices.ContainsFunc(targets, c.key.Models.Has) {
		return llmq.Errorf(llmq.CodeForbidden, "the key %s may not use model %q%s", c.key.KID, llmq.Clip(ref.String(), 80), listed(c.key.Models)).At("model")
	}
	return nil
}

// listed tells what a key may use instead.
func listed[T ~string](of []T) string {
	if len(of) == 0 {
		return "; it lists none"
	}
	words := make([]string, 0, len(of))
	for _, v := range of {
		words = append(words, string(v))
	}
	return "; it lists " + llmq.Clip(strings.Join(words, ", "), 200)
}

// Models are what the key may use; nobody has none.
func (c Caller) Models() llmq.ModelSet {
	if c.key == nil {
		return nil
	}
	return c.key.Models
}

// CallsPerMinute is the key's own rate; 0 is no bound.
func (c Caller) CallsPerMinute() int {
	if c.key == nil {
		return 0
	}
	return c.key.CallsPerMinute
}

// MaxChoices is how many choices one call of the key may ask for; nobody may ask for any.
func (c Caller) MaxChoices() int {
	if c.key == nil {
		return 0
	}
	return cmp.Or(c.key.MaxChoices, DefaultMaxChoices)
}

// Rate is how far a key has used its calls of the minute.
type Rate struct {
	Limit      int           // calls in any 60 s
	Left       int           // of them, after this one
	RetryAfter time.Duration // when one more fits; 0: this one was let in
	Reset      time.Duration // when all of them are free again, where no other call comes
}
