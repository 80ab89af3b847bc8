package cassette

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// MissError says that nothing was recorded for a request. It holds no part of a body but the path
// to a place in it, and no secret: hidden-secret stands for a host or a part of a path that holds one.
type MissError struct {
	Method, URL string // of the request; the URL as it is matched, at most 300 characters
	Nearest     string // file of the recording that is most like it; "" when there is none at all
	Differs     string // where: "method", "url", "body", or "body at " and a JSON pointer of at most 120 characters; "" with Played
	Played      int    // how many recordings answer this request, all of them played; 0 when none does
}

// Error tells it all in one line.
func (e *MissError) Error() string {
	s := fmt.Sprintf("cassette: no recording answers %s %s", e.Method, e.URL)
	switch {
	case e.Played > 0:
		return fmt.Sprintf("%s a further time: all %d are played, the last was %s; Options.Repeat plays it again", s, e.Played, e.Nearest)
	case e.Nearest == "":
		return s + ": the folder has no recordings; LLMQ_CASSETTE=record makes them"
	}
	return fmt.Sprintf("%s: the nearest, %s, differs in its %s; LLMQ_CASSETTE=record adds one", s, e.Nearest, e.Differs)
}

// miss is the error for a request that nothing answers. CallFatal, since no other target and no
// later try will have a recording either.
func (t *Tape) miss(r request, key Key) error {
	t.mu.Lock()
	all := make([]*track, len(t.all))
	copy(all, t.all)
	secrets := slices.Concat(t.opts.Secrets, r.secrets)
	e := &MissError{Method: r.method, URL: shownURL(r.url, secrets)}
	if tr := t.tracks[key]; tr != nil && len(tr.answers) > 0 {
		e.Played, e.Nearest = len(tr.answers), tr.answers[len(tr.answers)-1].name
	}
	firsts := make([]*recording, 0, len(all))
	for _, tr := range all {
		firsts = append(firsts, tr.answers[0])
	}
	t.mu.Unlock()
	if e.Played == 0 {
		e.Nearest, e.Differs = t.nearest(r, firsts)
	}
	if Scan([]byte(e.Method), secrets...) != nil {
		e.Method = hidden
	}
	if Scan([]byte(e.Differs), secrets...) != nil {
		e.Differs = "body" // a name in it
	}
	return &provider.Error{Class: provider.CallFatal, Code: llmq.CodeConfiguration, Message: provider.CleanMessage(e.Error()), Err: e}
}

// nearest finds the recording that differs in the least: first in method and URL, then in the
// fewest places of the body. The first of several in the folder's order.
func (t *Tape) nearest(r request, all []*recording) (name, differs string) {
	best := -1
	for _, other := range all {
		where, distance := t.distance(r, other.request)
		if best < 0 || distance < best {
			best, name, differs = distance, other.name, where
		}
	}
	return name, differs
}

// distance weighs what differs. A body has far less than a million places.
func (t *Tape) distance(a, b request) (where string, weight int) {
	const far = 1 << 30
	urlA, urlB := a.url.String(), t.matched(b.url).String()
	switch {
	case urlA != urlB:
		weight = 2*far - commonPrefix(urlA, urlB)
		where = "url"
	case a.method != b.method:
		weight, where = far, "method"
	case a.isJSON && b.isJSON:
		first, count := difference(b.json, a.json)
		return "body at " + llmq.Clip(first, 120), count
	default:
		return "body", far / 2
	}
	return where, weight
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// hidden stands where a secret was.
const hidden = "hidden-secret"

// shown is a request for people.
func shown(r request, secrets []string) string {
	if Scan([]byte(r.method), secrets...) != nil {
		return "a request"
	}
	return r.method + " " + shownURL(r.url, secrets)
}

// shownURL is a URL for people. If it holds a secret, what holds it is left out, and so is the query.
func shownURL(u *url.URL, secrets []string) string {
	holds := func(u *url.URL) bool { return Scan([]byte(u.String()), secrets...) != nil || holdsFolded(u, secrets) }
	if holds(u) {
		u = &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
		if holds(&url.URL{Host: u.Host}) {
			u.Host = hidden
		}
		parts := strings.Split(u.Path, "/")
		for i, part := range parts {
			if holds(&url.URL{Path: part}) {
				parts[i] = hidden
			}
		}
		u.Path = strings.Join(parts, "/")
		if holds(u) { // across parts
			return hidden
		}
	}
	return llmq.Clip(strings.ToValidUTF8(u.String(), "?"), 300)
}
