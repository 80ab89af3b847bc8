package main

import "math"

const second = 1000

// scenario is a provider, and what is asked of it.
type scenario struct {
	name         string
	provider     func(seed uint64) *provider
	work         func(since int64) workload
	rtPerSecond  float64
	askers       int // messages of a backlog without end that stand at the door
	length       int64
	steady       int64 // where the part begins that is measured
	stocked      bool  // what is left in its bucket early can be spent later, so goodput is that of the whole run
	stepAt       int64 // from here the time to recover is measured; 0 is no step
	countsTokens bool  // goodput is tokens
	unknown      float64
	lost         float64
	idle         func(since int64) bool // no background then
}

func always(v float64) change { return func(int64) float64 { return v } }

// between is b from t1 to t2, else a.
func between(a, b float64, t1, t2 int64) change {
	return func(since int64) float64 {
		if since >= t1 && since < t2 {
			return b
		}
		return a
	}
}

// foreign is a quota of which somebody else takes a part, on and off.
func foreign(seed uint64, all, part float64) change {
	r := stream(seed, streamForeign, 0)
	var edges []int64
	for t, away := int64(60*second), true; t < 3600*second; away = !away {
		edges = append(edges, t)
		mean := 75_000.0
		if away {
			mean = 45_000
		}
		t += int64(10_000 + r.ExpFloat64()*mean)
	}
	return func(since int64) float64 {
		passed := 0
		for _, e := range edges {
			if e > since {
				break
			}
			passed++
		}
		if passed%2 == 1 {
			return all - part
		}
		return all
	}
}

// during is an outage from 420 s to 480 s.
func during(o outage) func(int64) outage {
	return func(since int64) outage {
		if since >= 420*second && since < 480*second {
			return o
		}
		return noOutage
	}
}

// recovering is a concurrency quota of 50 that comes back slowly after 480 s.
func recovering(since int64) float64 {
	if since < 480*second {
		return 50
	}
	return math.Min(50, 5+45*float64(since-480*second)/(120*second))
}

// rpm is the quota of most scenarios with a rate; 53 slots carry about as much.
const rpm = 600

func shifting(since int64) workload {
	w := usual()
	switch since / (150 * second) % 4 {
	case 1:
		w.out = 100 // starts bind
	case 2:
		w.out = 550 // slots bind
	case 3:
		w.in, w.out = 1800, 150 // tokens bind
	}
	return w
}

// base is what scenarios share: a saturating backlog and some rt for 15 minutes, of which
// the first five are for learning.
func base(name string, rtPerSecond float64, p provider) *scenario {
	return &scenario{
		name: name, rtPerSecond: rtPerSecond, askers: 30, length: 900 * second, steady: 300 * second,
		work:     func(int64) workload { return usual() },
		provider: func(uint64) *provider { fresh := p; return &fresh },
	}
}

func (s *scenario) with(set func(*scenario)) *scenario {
	set(s)
	return s
}

func scenarios() []*scenario {
	few := func(s *scenario) { s.askers = 10 }
	tokens := func(s *scenario) { s.countsTokens = true }
	stocked := func(s *scenario) { s.stocked = true }
	stepped := func(at int64) func(*scenario) { return func(s *scenario) { s.stepAt = at } }
	return []*scenario{
		base("a concurrency 50", 2, provider{slots: always(50)}),
		base("a concurrency 400", 16, provider{slots: always(400)}).with(func(s *scenario) { s.askers = 150 }),
		base("a concurrency 8", 0.35, provider{slots: always(8)}).with(few),
		base("b RPM bucket, 10 % burst", 2, provider{starts: always(rpm), startsBurst: rpm / 10}),
		base("b RPM bucket, a minute's burst", 2, provider{starts: always(rpm)}).with(stocked),
		base("b RPM bucket, 1 s burst", 2, provider{starts: always(rpm), startsBurst: rpm / 60}),
		base("b 60 RPM", 0.2, provider{starts: always(60), startsBurst: 6}).with(few),
		base("c calendar minute", 2, provider{starts: always(rpm), startsBy: calendar, skew: 700}),
		base("c sliding minute", 2, provider{starts: always(rpm), startsBy: sliding}),
		base("c sliding, refused calls count", 2, provider{starts: always(rpm), startsBy: sliding, punishes: true}),
		base("d TPM, burndown 5", 1.6, provider{tokens: always(1.2e6), burndown: 5}).with(tokens),
		base("d TPM by minute", 2, provider{tokens: always(0.8e6), tokensBy: calendar, skew: -400}).with(tokens),
		base("e mixed", 2, provider{slots: always(60), starts: always(rpm), startsBurst: rpm / 6, tokens: always(1e6)}).
			with(func(s *scenario) { s.work, s.length = shifting, 1200*second }),
		base("f 2 % random, concurrency", 2, provider{slots: always(50), random: 0.02}),
		base("f 2 % random, RPM", 2, provider{starts: always(rpm), startsBurst: rpm / 10, random: 0.02}),
		base("f 30 % random, concurrency", 2, provider{slots: always(50), random: 0.3}),
		base("f 30 % random, RPM", 2, provider{starts: always(rpm), startsBurst: rpm / 10, random: 0.3}),
		base("g concurrency halves and returns", 1.2, provider{slots: between(50, 25, 420*second, 600*second)}).with(stepped(600 * second)),
		base("g RPM halves and returns", 1.2, provider{starts: between(rpm, rpm/2, 420*second, 600*second), startsBurst: rpm / 10}).
			with(stepped(600 * second)),
		base("g RPM raised tenfold", 1.2, provider{starts: between(rpm, 10*rpm, 420*second, math.MaxInt64), startsBurst: rpm}).
			with(stepped(420 * second)).with(func(s *scenario) { s.askers = 300 }),
		base("g concurrency raised tenfold", 1.2, provider{slots: between(40, 400, 420*second, math.MaxInt64)}).
			with(stepped(420 * second)).with(func(s *scenario) { s.askers = 150 }),
		base("h foreign consumer, concurrency", 1.5, provider{}).with(func(s *scenario) {
			s.provider = func(seed uint64) *provider { return &provider{slots: foreign(seed, 50, 20)} }
		}),
		base("h foreign consumer, RPM", 1.5, provider{}).with(func(s *scenario) {
			s.provider = func(seed uint64) *provider {
				return &provider{starts: foreign(seed, rpm, rpm*0.4), startsBurst: rpm / 10}
			}
		}),
		base("i outage by 429, slow recovery", 1.2, provider{slots: recovering, outage: during(throttlesAll)}).with(stepped(480 * second)),
		base("i outage by 5xx, slow recovery", 1.2, provider{slots: recovering, outage: during(failsAll)}).with(stepped(480 * second)),
		base("j RPM, true Retry-After", 2, provider{starts: always(rpm), startsBurst: rpm / 10, retryAfter: truthful}),
		base("j calendar minute, true Retry-After", 2, provider{starts: always(rpm), startsBy: calendar, skew: 700, retryAfter: truthful}),
		base("j concurrency, Retry-After always 30 s", 2, provider{slots: always(50), retryAfter: always30s}),
		base("k 30 % of endings unknown, concurrency", 2, provider{slots: always(50)}).with(func(s *scenario) { s.unknown = 0.3 }),
		base("k 30 % of endings unknown, RPM", 2, provider{starts: always(rpm), startsBurst: rpm / 10}).with(func(s *scenario) { s.unknown = 0.3 }),
		base("l 30 % of endings never arrive, concurrency", 2, provider{slots: always(50)}).with(func(s *scenario) { s.lost = 0.3 }),
		base("l 30 % of endings never arrive, RPM", 2, provider{starts: always(rpm), startsBurst: rpm / 10}).with(func(s *scenario) { s.lost = 0.3 }),
	}
}
