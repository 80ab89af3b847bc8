// Package routing decides how a call reaches its provider while all is well: by the queue, or where its caller waits. It is pure
// (FEATURES E4). What is done in outages is package client's to know.
package routing

import (
	"crypto/sha256"
	"encoding/binary"
)

// Way is how a call reaches its provider.
type Way int

const (
	// Queue sends it to its model's queue.
	Queue Way = iota
	// Auto runs it where its caller waits, if a slot of its first target is free at once; else it is queued.
	Auto
	// Direct runs it where its caller waits, at whichever target of its chain has a slot free at once; else it is queued.
	Direct
	// DirectOnly is Direct without the queue: where it can't be run it fails.
	DirectOnly
)

// Rules say how calls reach their providers. The zero value queues all of them.
type Rules struct {
	Killed bool            // nothing is queued
	Models map[string]Rule // by alias; of one that is missing all is queued
}

// Rule is that of a model's live calls.
type Rule struct {
	Way          Way     // Queue, Auto or Direct
	QueuePercent float64 // part of the sessions, 0 to 100, that queue all the same
}

// Call is what of a call decides its way.
type Call struct {
	Model string // alias
	May   bool   // it may be run where its caller waits: a live one that is no stream and whose caller waits to its end (FEATURES E12)
	// Session keeps calls of one caller together: each of them goes the same way while the rules stay. Where it is "" the
	// call's own ID decides.
	Session, ID string
}

// Decide is a call's way.
func (r Rules) Decide(c Call) Way {
	if r.Killed {
		return DirectOnly
	}
	rule := r.Models[c.Model]
	if !c.May || rule.Way == Queue || share(c) < rule.QueuePercent {
		return Queue
	}
	return rule.Way
}

// share is a call's place among all, 0 to 100. Raising a percentage moves callers over and none back.
func share(c Call) float64 {
	who := c.Session
	if who == "" {
		who = c.ID
	}
	sum := sha256.Sum256([]byte(c.Model + "\x00" + who)) // spreads ids that are alike, which quicker hashes don't
	return float64(binary.BigEndian.Uint64(sum[:8])>>11) / (1 << 53) * 100
}
