package server

import (
	"errors"
	"fmt"
	"time"
)

// Queued are replies for the calls that match.
type Queued struct {
	Match   Match
	Replies []Reply
}

// Program is all that can be programmed, as a file says it; see ParseProgram.
type Program struct {
	Rules []Rule
	Queue []Queued
}

func (p Program) validate() error {
	var faults []error
	if len(p.Rules) > maxRules {
		faults = append(faults, at("rules", fmt.Errorf("%d: want at most %d", len(p.Rules), maxRules)))
	}
	for i, r := range p.Rules {
		if err := r.validate(); err != nil {
			faults = append(faults, at("rules/"+itoa(i), err))
		}
	}
	queued := 0
	for i, q := range p.Queue {
		queued += len(q.Replies)
		for j, r := range q.Replies {
			if err := r.validate(); err != nil {
				faults = append(faults, at("queue/"+itoa(i)+"/replies/"+itoa(j), err))
			}
		}
	}
	if queued > maxQueued {
		faults = append(faults, at("queue", fmt.Errorf("%d replies: want at most %d", queued, maxQueued)))
	}
	return errors.Join(faults...)
}

func (q Queued) entries() []queued {
	all := make([]queued, 0, len(q.Replies))
	for _, r := range q.Replies {
		all = append(all, queued{match: q.Match.hashed(), reply: r.clone(), left: max(1, r.Times)})
	}
	return all
}

// Load replaces all rules and all queued replies. The clock of the rules' phases starts now, and so
// do their rates, as if no call had come before. Calls in flight go on; where a new rule has the same
// Match and Per, they count against its concurrency.
func (s *Server) Load(p Program) error {
	if err := p.validate(); err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	var queue []queued
	for _, q := range p.Queue {
		queue = append(queue, q.entries()...)
	}
	s.state.load(cloneRules(p.Rules), queue, false, time.Now())
	return nil
}

// SetRules replaces the rules as Load does, and leaves the queued replies.
func (s *Server) SetRules(rules ...Rule) error {
	if err := (Program{Rules: rules}).validate(); err != nil {
		return fmt.Errorf("set rules: %w", err)
	}
	s.state.load(cloneRules(rules), nil, true, time.Now())
	return nil
}

func cloneRules(rules []Rule) []Rule {
	cloned := make([]Rule, 0, len(rules))
	for _, r := range rules {
		cloned = append(cloned, r.clone())
	}
	return cloned
}

// Program queues replies for the calls that match, in this order, after those queued before. A
// call takes the first reply that waits for it; a call that a quota refuses takes none.
func (s *Server) Program(match Match, replies ...Reply) error {
	for i, r := range replies {
		if err := r.validate(); err != nil {
			return fmt.Errorf("program reply %d: %w", i, err)
		}
	}
	return s.state.enqueue(Queued{Match: match, Replies: replies}.entries())
}

// SetLatency sets how long calls take that no rule is for and that have no programmed Delay, from
// the next call on.
func (s *Server) SetLatency(l Latency) error {
	if err := l.validate(); err != nil {
		return fmt.Errorf("set latency: %w", err)
	}
	s.state.setLatency(l)
	return nil
}

// Release lets the calls go that match and hang now, and says how many those were. Calls that
// come later hang all the same: wait for them first, see AwaitInFlight.
func (s *Server) Release(match Match) int { return s.state.release(match) }

// Hanging is how many of the calls that match hang now.
func (s *Server) Hanging(match Match) int { return s.state.hanging(match) }

// Reset forgets the rules, the queued replies, the latency, the call log and the counters, and
// releases what hangs. Calls in flight go on, and count as in flight and in the new peaks.
func (s *Server) Reset() {
	s.state.release(Match{})
	s.state.resetProgram()
	s.ResetCounters()
}

// ResetCounters forgets the call log, the counters and which calls were seen, and leaves what is
// programmed.
func (s *Server) ResetCounters() { s.state.resetCounters(time.Now()) }
