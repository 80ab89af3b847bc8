// Package cassette records the exchanges with a provider and plays them back, at the HTTP
// transport: what is above it, adapters, SDKs, retries, runs as it does live.
//
// A [Tape] is a folder with one file per exchange. A request is matched on its method, its URL and
// the canonical form of its body ([Key] says how); headers don't count. Equal requests get their
// answers in the order of recording, each once. A request without a recording is a [MissError]:
// no socket is opened for it, and it is not to be tried again.
//
// No secret reaches the disk: headers and query parameters are stored by allow-list, ids of
// accounts, organizations and requests are blanked, and the bytes that are about to be written are
// searched for every secret that is known and for what has the shape of a key. A hit means no file
// (SECURITY-DESIGN CS1). Prompts and replies are stored; that is what a cassette is for.
//
// This package is linked by no function that is deployed (LM2): package wiring uses it under the
// build tag llmq_cassette only.
package cassette

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// Limits of one recording and of a folder.
const (
	MaxBodyBytes   = 20 << 20  // of a request, and of a reply, decoded; what package egress takes
	maxFileBytes   = 128 << 20 // both bodies in base64, and room
	maxRecordings  = 10_000    // files in a folder
	maxChunks      = 100_000   // of one reply
	MinSecretBytes = 8         // of a secret that is looked for; shorter text is found everywhere by chance
)

// Options say where the recordings are and what is done with them. Dir is required.
type Options struct {
	// Dir is the folder of the recordings. Recording makes it. Files of several folders can be put
	// into one; their names don't collide unless they answer the same request.
	Dir string

	// Mode is what is done; the zero value is [Replay].
	Mode Mode

	// Query names the query parameters that tell requests apart. Others are neither matched nor
	// stored, since presigned URLs and some vendors carry credentials there. Always among them:
	// api-version.
	Query []string

	// Secrets must not be in any file. Those that a request carries where credentials may be (its
	// headers but for a few that are no secrets, a password or key in the URL) are known without
	// being named here. At least 8 bytes each.
	Secrets []string

	// Repeat makes the last answer to a request serve all further ones. Otherwise each answer is
	// played once, and one request too many is a miss.
	Repeat bool

	// Timed makes replies take as long as they did when they were recorded. Otherwise they are
	// there at once, still in their chunks.
	Timed bool

	// AnyLoopbackPort leaves the port of 127.0.0.1, ::1 and localhost out of URLs. Servers of tests
	// and local clouds have another one in each run.
	AnyLoopbackPort bool

	// Env is the environment that may allow recording, as os.Environ gives it; nil is the
	// process's own. See [Mode].
	Env []string

	// Logger is told of exchanges that could not be recorded; nil discards.
	Logger *slog.Logger
}

// Tape plays and records one folder. It is safe for concurrent use. Several processes may record
// into one folder; each counts for itself which recordings it has played.
type Tape struct {
	opts    Options
	records bool // new recordings may be made
	plays   bool

	mu       sync.Mutex // guards what follows; never held during I/O
	tracks   map[Key]*track
	all      []*track // in the order of their first file's name
	failures []error
}

// track is what was recorded for one request.
type track struct {
	key     Key
	answers []*recording
	played  int // how many of answers; those made by this very tape count as played
}

// New opens a folder, or names every fault of o. It reads all recordings, so a file that can't be
// read shows here, with its line, and not in the middle of a test.
func New(o Options) (*Tape, error) {
	if o.Env == nil {
		o.Env = os.Environ()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Secrets = slices.Clone(o.Secrets)
	o.Query = append(slices.Clone(o.Query), "api-version")
	var faults []error
	if o.Dir == "" {
		faults = append(faults, errors.New("a folder (Dir) is required"))
	}
	for i, s := range o.Secrets {
		if len(s) < MinSecretBytes {
			faults = append(faults, fmt.Errorf("secret %d has less than %d bytes, which is found everywhere", i, MinSecretBytes))
		}
	}
	records, err := o.Mode.recording(o.Env)
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, fmt.Errorf("cassette: %w", err)
	}
	if info, err := os.Stat(o.Dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("cassette: %s is no folder", o.Dir)
	}
	if records {
		if err := sweep(o.Dir, time.Now()); err != nil {
			return nil, err
		}
	}
	t := &Tape{opts: o, records: records, plays: o.Mode != Record, tracks: map[Key]*track{}}
	if err := t.load(); err != nil {
		return nil, err
	}
	return t, nil
}

// load reads the folder. In mode Record nothing is played, so what is there does not matter.
func (t *Tape) load() error {
	if !t.plays {
		return nil
	}
	names, err := list(t.opts.Dir)
	if errors.Is(err, os.ErrNotExist) && t.opts.Mode == Auto {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cassette: %w", err)
	}
	var faults []error
	for _, name := range names {
		r, err := read(t.opts.Dir, name)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		t.add(t.keyOf(r), r, false)
	}
	return errors.Join(faults...)
}

// add puts a recording at the end of its track.
func (t *Tape) add(k Key, r *recording, played bool) {
	tr := t.tracks[k]
	if tr == nil {
		tr = &track{key: k}
		t.tracks[k] = tr
		t.all = append(t.all, tr)
	}
	tr.answers = append(tr.answers, r)
	if played {
		tr.played = len(tr.answers)
	}
}

// recorded notes what became of an exchange.
func (t *Tape) recorded(k Key, r *recording, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failures = append(t.failures, err)
		return
	}
	t.add(k, r, true)
}

// take is the next answer to a request, or nil.
func (t *Tape) take(k Key) *recording {
	t.mu.Lock()
	defer t.mu.Unlock()
	tr := t.tracks[k]
	switch {
	case tr == nil:
		return nil
	case tr.played < len(tr.answers):
		tr.played++
		return tr.answers[tr.played-1]
	case t.opts.Repeat:
		return tr.answers[len(tr.answers)-1]
	}
	return nil
}

// Wrap returns a transport that plays, and where that is allowed asks next and records. next may
// be nil for a tape that only plays.
//
// A request is read whole before it is sent, and its body is closed. Nothing is sent twice.
// Errors are a *[provider.Error] of class CallFatal with a [MissError] inside, or else next's own.
func (t *Tape) Wrap(next http.RoundTripper) http.RoundTripper { return &transport{tape: t, next: next} }

// Unplayed lists the files that have answered nothing yet: what a request that has changed leaves
// behind. Sorted as the folder is.
func (t *Tape) Unplayed() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for _, tr := range t.all {
		for _, r := range tr.answers[tr.played:] {
			names = append(names, r.name)
		}
	}
	slices.Sort(names)
	return names
}

// Close tells which exchanges were not recorded though they should have been, and why: a secret
// was found, a limit passed, the disk was full. The exchanges themselves went through. Recordings
// are on the disk when their reply has been read to its end, so nothing is lost without Close.
func (t *Tape) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.failures...)
}

// transport is a tape at one client's place.
type transport struct {
	tape *Tape
	next http.RoundTripper
}

// RoundTrip answers from the tape, or asks next and records.
func (p *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	t := p.tape
	body, err := readRequest(req)
	if err != nil {
		return nil, err
	}
	asked := t.request(req, body)
	key := t.keyOf(&recording{request: asked})
	if t.plays {
		if r := t.take(key); r != nil {
			return play(req, r, t.opts.Timed)
		}
	}
	if !t.records || p.next == nil {
		return nil, t.miss(asked, key)
	}
	out := req.Clone(req.Context())
	if body != nil {
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	start := time.Now()
	resp, err := p.next.RoundTrip(out)
	if err != nil {
		return nil, err // nothing came, so there is nothing to keep
	}
	resp.Body = t.record(req, resp, asked, key, time.Since(start))
	return resp, nil
}
