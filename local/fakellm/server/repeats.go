package server

import (
	"crypto/sha256"
	"net/http"
)

// maxMarks bounds the calls among which repeats are noticed.
const maxMarks = 100_000

// mark tells calls apart without keeping what they say.
type mark [sha256.Size]byte

// repeats remembers the latest marks.
type repeats struct {
	seen map[mark]struct{}
	ring []mark
	next int
}

func newRepeats() *repeats { return &repeats{seen: map[mark]struct{}{}} }

// note remembers a mark and says whether it was there.
func (r *repeats) note(m mark) bool {
	if _, there := r.seen[m]; there {
		return true
	}
	r.seen[m] = struct{}{}
	if len(r.ring) < maxMarks {
		r.ring = append(r.ring, m)
		return false
	}
	delete(r.seen, r.ring[r.next])
	r.ring[r.next] = m
	r.next = (r.next + 1) % maxMarks
	return false
}

// bodyMarkOf is the same for calls that ask the same of the same route, by whomever.
func bodyMarkOf(path string, body [sha256.Size]byte) mark {
	return sha256.Sum256(append([]byte("body\n"+path+"\n"), body[:]...))
}

// keyMarkOf is zero for a call without an Idempotency-Key.
func keyMarkOf(r *http.Request, who identity) mark {
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		return mark{}
	}
	return sha256.Sum256([]byte("key\n" + who.keyHash + "\n" + key))
}
