package lambda

import (
	"math"
	"slices"
	"sync"
	"time"
)

// Stats counts what happened to a function since it was created.
type Stats struct {
	Invocations  int64 // handed to a process; not those throttled or refused
	Errors       int64 // of these, ended by a function error
	Throttles    int64 // refused with CodeThrottled
	ColdStarts   int64 // instances started
	SpunDown     int64 // instances ended for idleness or age
	BilledMS     int64 // milliseconds a bill would count: each invocation rounded up, init included
	Peak         int   // most instances alive at once
	InFlight     int   // invocations running now
	PeakInFlight int   // most invocations at once
}

// function is a configuration and the instances that run it.
type function struct {
	host *Host
	cfg  FunctionConfig

	mu        sync.Mutex // guards what follows, and of its instances: reap, serving, pooled
	instances []*instance
	idle      []*instance // the last one became idle last and is used first, as AWS does: the rest can be reaped
	closed    bool
	stats     Stats
	reserved  int    // concurrency, or noReservation
	scale     bucket // of new instances
	rate      bucket // of invocations
	faults    faults
}

func newFunction(h *Host, cfg FunctionConfig) *function {
	f := &function{host: h, cfg: cfg, reserved: noReservation, scale: bucket{per: h.opts.ScaleUp, window: scaleWindow}}
	if cfg.Concurrency > 0 {
		f.reserved = cfg.Concurrency
	}
	f.rate = f.newRate()
	return f
}

func (f *function) newRate() bucket {
	switch {
	case !f.host.opts.RequestRate:
		return bucket{}
	case f.reserved != noReservation:
		return bucket{per: ratePerInstance * f.reserved, window: time.Second}
	default:
		return bucket{per: ratePerInstance * f.host.opts.AccountConcurrency, window: time.Second}
	}
}

// dispatch gives an invocation to an instance. It never waits for one: no instance to be had is CodeThrottled.
func (f *function) dispatch(inv *invocation) error {
	for {
		inst, fresh, err := f.reserve()
		if err != nil {
			return err
		}
		if fresh {
			inv.cold = true
			inst.launch(inv)
			return nil
		}
		if inst.assign(inv) {
			return nil
		}
		// It died between becoming idle and now; look for another.
	}
}

// reserve takes an idle instance or makes a new one.
func (f *function) reserve() (inst *instance, fresh bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, false, closedError(f.cfg.Name)
	}
	pooled, reason := f.admit(time.Now())
	if reason != "" {
		f.stats.Throttles++
		return nil, false, throttled(f.cfg.Name, reason)
	}
	if n := len(f.idle); n > 0 {
		inst, f.idle = f.idle[n-1], f.idle[:n-1]
		if inst.reap != nil {
			inst.reap.Stop()
		}
	} else {
		inst, fresh = newInstance(f), true
		f.instances = append(f.instances, inst)
		f.stats.ColdStarts++
		f.stats.Peak = max(f.stats.Peak, len(f.instances))
		f.host.life.Add(1) // inside the lock: close can't have been called, so Close is not waiting yet
	}
	inst.serving, inst.pooled = true, pooled
	f.stats.InFlight++
	f.stats.PeakInFlight = max(f.stats.PeakInFlight, f.stats.InFlight)
	return inst, fresh, nil
}

// admit asks every limit for one more invocation. It returns why not, or whether one was taken from the account. The
// caller holds f.mu.
func (f *function) admit(now time.Time) (pooled bool, reason string) {
	own := f.reserved != noReservation
	concurrent, rate := ThrottleAccount, ThrottleRate
	if own {
		concurrent, rate = ThrottleReserved, ThrottleRateReserved
	}
	switch {
	case f.faults.throttle > 0:
		f.faults.throttle--
		return false, concurrent
	case own && f.stats.InFlight >= f.reserved:
		return false, concurrent
	case !f.rate.take(now):
		return false, rate
	case len(f.idle) == 0 && !f.scale.take(now):
		return false, rate
	case own:
		return false, ""
	case !f.host.account.take():
		return false, concurrent
	default:
		return true, ""
	}
}

// leave ends the count of an instance's invocation. The caller holds f.mu.
func (f *function) leave(inst *instance) {
	if !inst.serving {
		return
	}
	f.stats.InFlight--
	if inst.pooled {
		f.host.account.give()
	}
	inst.serving, inst.pooled = false, false
}

// release puts an instance back after an invocation, or spins it down when it has become too old or stale.
func (f *function) release(inst *instance) {
	idle, age := f.host.opts.IdleTimeout, f.host.opts.MaxLifetime
	f.mu.Lock()
	f.leave(inst)
	if !slices.Contains(f.instances, inst) { // it died meanwhile
		f.mu.Unlock()
		return
	}
	wait := time.Duration(math.MaxInt64)
	if idle > 0 {
		wait = idle
	}
	if age > 0 {
		wait = min(wait, age-time.Since(inst.made))
	}
	old := wait <= 0 || inst.stale
	switch {
	case old:
		f.stats.SpunDown++
	default:
		f.idle = append(f.idle, inst)
		if wait < math.MaxInt64 {
			inst.reap = time.AfterFunc(wait, func() { f.retire(inst) })
		}
	}
	f.mu.Unlock()
	if old {
		inst.spinDown()
	}
}

// retire spins an instance down, unless it has got work meanwhile.
func (f *function) retire(inst *instance) {
	f.mu.Lock()
	n := len(f.idle)
	f.idle = slices.DeleteFunc(f.idle, func(other *instance) bool { return other == inst })
	unused := len(f.idle) < n
	if unused {
		f.stats.SpunDown++
	}
	f.mu.Unlock()
	if unused {
		inst.spinDown()
	}
}

// remove forgets a dead instance.
func (f *function) remove(inst *instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leave(inst)
	if inst.reap != nil {
		inst.reap.Stop()
	}
	same := func(other *instance) bool { return other == inst }
	f.instances = slices.DeleteFunc(f.instances, same)
	f.idle = slices.DeleteFunc(f.idle, same)
}

// record counts an invocation that a process was given, and returns what a bill would count of it, in milliseconds.
func (f *function) record(took time.Duration, failed bool) int64 {
	billed := int64(math.Ceil(float64(took) / float64(time.Millisecond)))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Invocations++
	if failed {
		f.stats.Errors++
	}
	f.stats.BilledMS += billed
	return billed
}

// close refuses further work and returns the instances to stop.
func (f *function) close() []*instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return slices.Clone(f.instances)
}

// renew makes every instance stale, and returns those that have no work to end first.
func (f *function) renew() []*instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, inst := range f.instances {
		inst.stale = true
	}
	idle := f.idle
	f.idle = nil
	f.stats.SpunDown += int64(len(idle))
	for _, inst := range idle {
		if inst.reap != nil {
			inst.reap.Stop()
		}
	}
	return idle
}

func (f *function) all() []*instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.instances)
}

func (f *function) list() []InstanceInfo {
	instances := f.all()
	infos := make([]InstanceInfo, 0, len(instances))
	for _, inst := range instances {
		infos = append(infos, inst.info())
	}
	return infos
}
