// Package idhash turns the ids of people and sessions into names that only the holder
// of a salt can tell apart: llmq keeps, sends and logs no other form of them
// (SECURITY-DESIGN DP5).
package idhash

import (
	"encoding/base32"
	"errors"
	"strings"

	"golang.org/x/crypto/blake2b"
)

// LocalSalt is the salt where none is configured. It is no secret, so configuration
// refuses it on AWS.
const LocalSalt = "llmq-local"

// MinSaltBytes is the shortest salt that is taken.
const MinSaltBytes = 8

// Hasher hashes ids under one salt. It is safe for concurrent use.
type Hasher struct{ key []byte }

// New is the hasher of a salt of at least [MinSaltBytes].
func New(salt string) (*Hasher, error) {
	if len(salt) < MinSaltBytes {
		return nil, errors.New("the salt of id hashes must have at least 8 characters")
	}
	key := []byte(salt)
	if len(key) > blake2b.Size { // BLAKE2b takes no longer key
		sum := blake2b.Sum512(key)
		key = sum[:]
	}
	return &Hasher{key: key}, nil
}

// hashBytes keeps ids apart up to some 2^40 of them.
const hashBytes = 10

// Hash is an id's name: 16 letters and digits. An empty id stays empty.
func (h *Hasher) Hash(id string) string {
	if id == "" {
		return ""
	}
	mac, err := blake2b.New(hashBytes, h.key)
	if err != nil {
		panic("idhash: " + err.Error()) // size and key were checked by New
	}
	mac.Write([]byte(id))
	return strings.ToLower(base32.StdEncoding.EncodeToString(mac.Sum(nil)))
}
