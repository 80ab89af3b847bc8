package main

import (
	"math/rand/v2"

	"github.com/llm-queue/llmq/pkg/llmq/capacity"
)

// runStart is the time at which a run begins: 17 s into a minute of the calendar.
const runStart = 17_000

// rtPatience is how long an rt call looks for a slot.
const rtPatience = 30_000

// limiter is what decides in a run: a law, or the oracle.
type limiter interface {
	// admit says whether a call may start now and, if not, in how many ms to ask again;
	// 0 is whenever the caller likes.
	admit(now int64, c *call) (ok bool, wait int64)
	// settle ends a lease. tokens is what an answered call cost; retryAfter is in ms.
	settle(now, id int64, e capacity.Ending, tokens, retryAfter int64)
}

// outcome is what a run gave. Slices are by second of the run.
type outcome struct {
	accepted  []float64 // calls, or their tokens, that the provider took
	attempts  []int
	throttled []int
	rtWaits   []float64 // of rt calls of the steady part, ms from arrival to start
	rtLost    int       // gave up
	started   [3]int    // accepted calls by lane
	bulkGap   int64     // the longest time without a start of bg or bulk
	peak      int       // most calls in flight at the provider
	digest    uint64    // of every decision
	decisions int
}

// world plays one scenario with one limiter.
type world struct {
	*outcome
	now     int64
	events  events
	order   int64
	sc      *scenario
	seed    uint64
	rng     *rand.Rand
	p       *provider
	limiter limiter
	ideal   bool // the oracle's world: starts take no time, no news is lost
	ids     int64
	bulk    uint64
	lastBG  int64
}

type event struct {
	at, order int64
	do        func()
}

type events []event

// before orders events by time, and those of one time as they were made.
func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.order < o.order }

// push and pop keep a binary heap. (container/heap would box every event.)
func (e *events) push(v event) {
	h := append(*e, v)
	i := len(h) - 1
	for i > 0 && v.before(h[(i-1)/2]) {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i], *e = v, h
}

func (e *events) pop() event {
	h := *e
	first, last := h[0], h[len(h)-1]
	h[len(h)-1] = event{} // its closure can go
	h = h[:len(h)-1]
	for i := 0; len(h) > 0; {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if child >= len(h) || !h[child].before(last) {
			h[i] = last
			break
		}
		h[i] = h[child]
		i = child
	}
	*e = h
	return first
}

func (w *world) after(ms int64, do func()) {
	w.order++
	w.events.push(event{w.now + ms, w.order, do})
}

// play runs a scenario; the same seed gives the same calls whatever the limiter.
func play(sc *scenario, seed uint64, make func(*provider) limiter, ideal bool) *outcome {
	seconds := sc.length/1000 + 2
	w := &world{
		outcome: &outcome{accepted: floats(seconds), attempts: ints(seconds), throttled: ints(seconds)},
		now:     runStart, sc: sc, seed: seed, rng: stream(seed, streamWorld, 0), ideal: ideal, lastBG: runStart,
	}
	w.p = sc.provider(seed)
	w.p.begin(seed)
	w.limiter = make(w.p)
	for range sc.askers {
		w.nextBackground(w.rng.Int64N(500))
	}
	if sc.rtPerSecond > 0 {
		r := stream(seed, streamRT, 0)
		w.after(int64(r.ExpFloat64()/sc.rtPerSecond*1000), func() { w.rtArrives(r) })
	}
	end := runStart + sc.length
	for len(w.events) > 0 && w.events[0].at < end {
		e := w.events.pop()
		w.now = e.at
		e.do()
	}
	w.bulkGap = max(w.bulkGap, end-w.lastBG)
	return w.outcome
}

func floats(n int64) []float64 { return make([]float64, n) }
func ints(n int64) []int       { return make([]int, n) }

func (w *world) since() int64 { return w.now - runStart }

func (w *world) rtArrives(r *rand.Rand) {
	w.ids++
	c := w.sc.work(w.since()).draw(r, w.ids, laneRT)
	c.arrived, c.giveUpAt = w.now, w.now+rtPatience
	w.ask(c)
	w.after(int64(r.ExpFloat64()/w.sc.rtPerSecond*1000)+1, func() { w.rtArrives(r) })
}

// nextBackground lets another message of a backlog without end come to the door.
func (w *world) nextBackground(in int64) {
	w.after(in, func() {
		if w.sc.idle != nil && w.sc.idle(w.since()) {
			w.nextBackground(1000)
			return
		}
		w.bulk++
		w.ids++
		l := laneBulk
		if w.bulk%2 == 0 {
			l = laneBG
		}
		c := w.sc.work(w.since()).draw(stream(w.seed, streamBulk, w.bulk), w.ids, l)
		c.arrived = w.now
		w.ask(c)
	})
}

func (w *world) ask(c *call) {
	ok, wait := w.limiter.admit(w.now, c)
	w.note(c.id, ok, wait)
	if ok {
		w.start(c)
		return
	}
	if c.lane == laneRT {
		if w.now >= c.giveUpAt {
			w.giveUp(c)
			return
		}
		w.after(150+w.rng.Int64N(100), func() { w.ask(c) })
		return
	}
	next := 250 + w.rng.Int64N(500)
	if wait > next {
		next = wait + w.rng.Int64N(500)
	}
	w.after(next, func() { w.ask(c) })
}

// note takes a decision into the digest (FNV-1a, a number at a time), so that two runs can
// be compared.
func (w *world) note(id int64, ok bool, wait int64) {
	w.decisions++
	if ok {
		id = -id
	}
	for _, v := range [3]int64{w.now, id, wait} {
		w.digest = (w.digest ^ uint64(v)) * 1099511628211
	}
}

// start sends an admitted call: some ms to the provider, some back.
func (w *world) start(c *call) {
	if c.lane != laneRT && c.attempts == 0 {
		w.nextBackground(50 + w.rng.Int64N(50))
	}
	c.attempts++
	there, back := 15+w.rng.Int64N(25), 50+w.rng.Int64N(80)
	if w.ideal {
		there = 0
	}
	w.after(there, func() { w.arrive(c, back) })
}

func (w *world) arrive(c *call, back int64) {
	second := w.since() / 1000
	w.attempts[second]++
	verdict, wait := w.p.start(w.now, c)
	w.peak = max(w.peak, w.p.inFlight)
	if verdict == accepted {
		w.accept(c, second)
		return
	}
	ending := capacity.Failed
	if verdict == throttled {
		w.throttled[second]++
		ending = capacity.Throttled
	}
	w.after(back, func() {
		w.report(c.id, ending, 0, wait)
		w.retry(c, wait)
	})
}

func (w *world) accept(c *call, second int64) {
	weight := 1.0
	if w.sc.countsTokens {
		weight = float64(c.charged(w.p.burndown))
	}
	w.accepted[second] += weight
	w.started[c.lane]++
	if c.lane == laneRT {
		w.noteRT(c, w.now-c.arrived)
	} else {
		w.bulkGap = max(w.bulkGap, w.now-w.lastBG)
		w.lastBG = w.now
	}
	latency := c.latency
	if w.p.slow != nil {
		latency = int64(float64(latency) * w.p.slow(c))
	}
	w.after(latency, func() {
		w.p.finish(w.now, c)
		w.after(5+w.rng.Int64N(15), func() { w.report(c.id, capacity.OK, c.charged(w.p.burndown), 0) })
	})
}

// report tells the limiter how a call ended, unless that news is lost.
func (w *world) report(id int64, e capacity.Ending, tokens, wait int64) {
	if !w.ideal {
		if w.sc.lost > 0 && w.rng.Float64() < w.sc.lost {
			return // its lease will have to lapse
		}
		if w.sc.unknown > 0 && w.rng.Float64() < w.sc.unknown {
			w.limiter.settle(w.now, id, capacity.Abandoned, 0, 0)
			return
		}
	}
	w.limiter.settle(w.now, id, e, tokens, wait)
}

// retry sends a refused call back with a delay: 1 to 2.5 s, 4 to 10 s, then 10 s.
func (w *world) retry(c *call, retryAfter int64) {
	if c.lane == laneRT && c.attempts >= 6 {
		w.giveUp(c)
		return
	}
	base, spread := 1000.0, 1500.0
	switch {
	case c.attempts == 2:
		base, spread = 4000, 6000
	case c.attempts > 2:
		base, spread = 10000, 1
	}
	delay := int64(base + w.rng.Float64()*spread)
	if retryAfter > delay && retryAfter <= 30_000 {
		delay = retryAfter
	}
	w.ids++
	c.id = w.ids
	w.after(delay, func() { w.ask(c) })
}

func (w *world) giveUp(c *call) {
	w.rtLost++
	w.noteRT(c, rtPatience)
}

func (w *world) noteRT(c *call, wait int64) {
	if c.arrived-runStart >= w.sc.steady {
		w.rtWaits = append(w.rtWaits, float64(wait))
	}
}
