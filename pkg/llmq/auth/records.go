package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Objects is where records lie, with a version of each: the state bucket. Implementations are safe for
// concurrent use.
type Objects interface {
	// Get reads an object and its version. The error is [ErrUnknown] where there is none.
	Get(ctx context.Context, key string) (body []byte, version string, err error)
	// Put writes an object whose version is still the given one, "" for one that must not exist yet, else
	// the error is [ErrChanged] and nothing is written.
	Put(ctx context.Context, key string, body []byte, version string) error
	// List names up to most objects with a prefix, after one of them, in order, and says whether more follow.
	List(ctx context.Context, prefix, after string, most int) (keys []string, more bool, err error)
}

var (
	// ErrUnknown says that there is no such key. (S3 says that access is denied to a role that may not list.)
	ErrUnknown = errors.New("no such key")
	// ErrChanged says that somebody else was faster.
	ErrChanged = errors.New("the object was changed meanwhile")
)

// How long a record is believed (SECURITY-DESIGN KT3).
const (
	freshFor   = 30 * time.Second // a revoked key is refused within this time
	missFor    = 5 * time.Second  // that there is none, or that it lacks a secret: a rotation may just have made it
	outlivesBy = 5 * time.Minute  // how long a known record serves while it can't be read anew
	retryAfter = 5 * time.Second  // between two reads of a record that fail
	readWithin = 2 * time.Second
	mostKept   = 4096 // records; beyond them those that are no longer fresh are forgotten
)

const objectPrefix = "keys/"

func objectOf(kid string) string { return objectPrefix + kid + ".json" }

// Records looks keys up, and keeps what it has read in this process's memory and nowhere else. It is safe for
// concurrent use.
type Records struct {
	objects Objects

	mu    sync.Mutex // guards known and what it holds; never held while reading
	known map[string]*entry
}

// entry is what is known of a kid. Times are on the wall clock, since a frozen process's other one stands still.
type entry struct {
	record *Record       // nil where none was ever read
	read   time.Time     // when the last read that succeeded, or found nothing, began
	failed time.Time     // when the last one that failed ended; zero after a success
	err    error         // what it failed with
	flight chan struct{} // closed when the read under way has ended; nil while there is none
}

// NewRecords reads from objects.
func NewRecords(objects Objects) *Records {
	return &Records{objects: objects, known: map[string]*entry{}}
}

// Look returns the record of a kid: as it was at most 30 s ago, or, while the bucket can't be read, 5 min. It is
// [ErrUnknown] where there is none; any other error means that nobody can tell.
func (b *Records) Look(ctx context.Context, kid string) (*Record, error) {
	return b.look(ctx, kid, freshFor)
}

// look is Look for a record of at most that age.
func (b *Records) look(ctx context.Context, kid string, fresh time.Duration) (*Record, error) {
	if !legalKID(kid) {
		return nil, ErrUnknown
	}
	for {
		v := b.view(kid, fresh, time.Now().Round(0))
		switch {
		case v.flight == nil:
			return v.record, v.err
		case v.mine:
			b.read(ctx, kid, v.flight)
		default:
			select {
			case <-v.flight:
			case <-ctx.Done():
				return nil, fmt.Errorf("wait for the record of key %s: %w", kid, ctx.Err())
			}
		}
	}
}

// view is what memory says of a kid.
type view struct {
	record *Record
	err    error
	flight chan struct{} // memory says nothing: this read is to be waited for
	mine   bool          // and is the asker's to do
}

func (b *Records) view(kid string, fresh time.Duration, now time.Time) view {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.known[kid]
	if e == nil {
		b.forget(now)
		e = &entry{}
		b.known[kid] = e
	}
	age := now.Sub(e.read)
	switch {
	case e.flight != nil:
		return view{flight: e.flight}
	case e.read.IsZero() || age < 0:
	case e.record != nil && age < fresh:
		return view{record: e.record}
	case e.record == nil && age < missFor:
		return view{err: ErrUnknown}
	}
	if e.failed.IsZero() || !within(now, e.failed, retryAfter) {
		e.flight = make(chan struct{})
		return view{flight: e.flight, mine: true}
	}
	if e.record != nil && within(now, e.read, outlivesBy) {
		return view{record: e.record}
	}
	return view{err: e.err}
}

func within(now, then time.Time, d time.Duration) bool {
	age := now.Sub(then)
	return age >= 0 && age < d
}

// read reads a record for all who wait for it. It outlives the caller's context, for the others' sake.
func (b *Records) read(ctx context.Context, kid string, flight chan struct{}) {
	began := time.Now().Round(0)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readWithin)
	defer cancel()
	body, _, err := b.objects.Get(ctx, objectOf(kid))
	var r *Record
	if err == nil {
		r, err = readRecord(kid, body)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.known[kid]
	e.flight = nil
	close(flight)
	switch {
	case err == nil:
		*e = entry{record: r, read: began}
	case errors.Is(err, ErrUnknown) && e.record == nil:
		*e = entry{read: began}
	default:
		if errors.Is(err, ErrUnknown) {
			err = fmt.Errorf("the record of key %s is gone, and none is ever deleted", kid) // a fault of the bucket's, or of our rights
		}
		e.failed, e.err = time.Now().Round(0), err
	}
}

// forget drops what is of no more use, where there is much of it. The caller holds the lock.
func (b *Records) forget(now time.Time) {
	if len(b.known) < mostKept {
		return
	}
	for kid, e := range b.known {
		if e.flight == nil && !within(now, e.read, freshFor) {
			delete(b.known, kid)
		}
	}
}

// Allowed is what a queued request may still use: [llmq.CodeKeyRevoked] where its key was
// revoked, [llmq.CodeBadEnvelope] where its key is another tenant's (SECURITY-DESIGN MS2), and
// [llmq.CodeQueueUnavailable] where the record can't be read. One that is not there counts as that: no door lets
// in a key without a record and none is ever deleted, so that the fault lies with the bucket or our rights to it.
// That the key has expired since the request was taken ends nothing.
func (b *Records) Allowed(ctx context.Context, kid, tenant string) (llmq.ModelSet, error) {
	r, err := b.Look(ctx, kid)
	switch {
	case err != nil:
		return nil, unavailable(err)
	case r.Tenant != tenant:
		return nil, llmq.Errorf(llmq.CodeBadEnvelope, "kid names a key of another tenant").At("kid")
	case r.RevokedAt != nil:
		return nil, revoked(r)
	}
	return r.Models, nil
}
