package awscost

import "math"

// Lever is a way to pay less, or more.
type Lever struct {
	Name string  `json:"lever"`
	USD  float64 `json:"usd"` // a million calls with it
}

// Levers shows what each change alone would do to calls like those counted. Idle waiting is the bill: whoever waits is paid by the
// second. What takes the calls' own time to tell is left out where [Counts.CallSeconds] is not known.
func (p Prices) Levers(c Counts) []Lever {
	out := []Lever{}
	if c.Calls == 0 {
		return out
	}
	timed, now := c.CallSeconds > 0, Total(p.Million(c))
	const (
		shortCall = 2.0  // seconds
		changes   = 0.05 // of the sum: what would change less is so already
	)
	for _, l := range []struct {
		name  string
		known bool
		with  func(Counts) Counts
	}{
		{"callers wait at the door (rt)", timed, waiting},
		{"callers submit and ask later (bg, bulk: /llmq/v1/calls)", true, submitted},
		{"one call in a worker at a time (calls one by one, batch_size 1)", timed, func(c Counts) Counts { return c.together(1) }},
		{"ten calls in a worker at a time (few workers: lanes.*.max_concurrency)", timed, func(c Counts) Counts { return c.together(10) }},
		{"doors and workers with 128 MB", true, func(c Counts) Counts { return c.with(func(f *Function) { f.MemoryMB = 128 }) }},
		{"the door runs the call itself (routing.rt: direct)", timed, direct},
		{"calls of 2 s in the place of these", timed, func(c Counts) Counts { return c.lasting(shortCall) }},
		{"bodies of 300 KB through S3", true, func(c Counts) Counts { c.S3Writes, c.S3Reads = c.S3Writes+c.Calls, c.S3Reads+c.Calls; return c }},
	} {
		if !l.known {
			continue
		}
		if usd := Total(p.Million(l.with(c))); math.Abs(usd-now) > changes*now {
			out = append(out, Lever{l.name, usd})
		}
	}
	return out
}

// together are the same calls, with n of them in each invocation of a worker, all at once.
func (c Counts) together(n float64) Counts {
	memory := 0.0
	for _, f := range c.Functions {
		if f.Role == RoleWorker {
			memory = max(memory, f.MemoryMB)
		}
	}
	c = without(c, RoleWorker)
	c.Functions = append(c.Functions, Function{Role: RoleWorker, MemoryMB: memory, Invocations: c.Calls / n, BilledMS: c.CallSeconds * 1000 / n})
	return c
}

// without are the same counts without the functions of a role.
func without(c Counts, r Role) Counts {
	var rest []Function
	for _, f := range c.Functions {
		if f.Role != r {
			rest = append(rest, f)
		}
	}
	c.Functions = rest
	return c
}

// direct are the same calls without a queue.
func direct(c Counts) Counts {
	c = without(waiting(c), RoleWorker)
	c.SQS, c.EmptyReceives, c.Grouped = nil, 0, 0
	return c
}

// lasting are the same calls, each of so many seconds. A caller that waits saves the difference at the door, and the worker its part.
func (c Counts) lasting(seconds float64) Counts {
	saved := c.CallSeconds - c.Calls*seconds
	part := c.Calls * seconds / c.CallSeconds
	doors, _ := c.of(RoleDoor)
	waits := doors > 0 && c.seconds(RoleDoor) > c.CallSeconds/2
	c = c.with(func(f *Function) {
		switch {
		case f.Role == RoleWorker:
			f.BilledMS *= part
		case f.Role == RoleDoor && waits:
			f.BilledMS = max(0, f.BilledMS-saved*1000*f.Invocations/doors)
		}
	})
	c.CallSeconds = c.Calls * seconds
	return c
}
