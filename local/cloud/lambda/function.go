package lambda

import (
	"math"
	"slices"
	"sync"
	"time"
)

// Stats counts what happened to a function since it was created.
type Stats struct {
	Invocations int64 // handed to a process; not those throttled or refused
	Errors      int64 // of these, ended by a function error
	Throttles   int64 // refused with CodeThrottled
	ColdStarts  int64 // processes started
	BilledMS    int64 // milliseconds a bill would count: each invocation rounded up, init included
	Peak        int   // most instances alive at once
}

// function is a configuration and the instances that run it.
type function struct {
	host *Host
	cfg  FunctionConfig

	mu        sync.Mutex // guards what follows
	instances []*instance
	idle      []*instance // the last one became idle last and is used first, as AWS does: the rest can be reaped
	closed    bool
	stats     Stats
}

func newFunction(h *Host, cfg FunctionConfig) *function { return &function{host: h, cfg: cfg} }

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
	if n := len(f.idle); n > 0 {
		inst, f.idle = f.idle[n-1], f.idle[:n-1]
		return inst, false, nil
	}
	if len(f.instances) >= f.cfg.Concurrency {
		f.stats.Throttles++
		return nil, false, &Error{Code: CodeThrottled, Function: f.cfg.Name, Reason: "Rate Exceeded."}
	}
	inst = newInstance(f)
	f.instances = append(f.instances, inst)
	f.stats.ColdStarts++
	f.stats.Peak = max(f.stats.Peak, len(f.instances))
	f.host.life.Add(1) // inside the lock: close can't have been called, so Close is not waiting yet
	return inst, true, nil
}

// release puts an instance back after an invocation.
func (f *function) release(inst *instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.instances, inst) { // else it died meanwhile
		f.idle = append(f.idle, inst)
	}
}

// remove forgets a dead instance.
func (f *function) remove(inst *instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	same := func(other *instance) bool { return other == inst }
	f.instances = slices.DeleteFunc(f.instances, same)
	f.idle = slices.DeleteFunc(f.idle, same)
}

// record counts an invocation that a process was given.
func (f *function) record(took time.Duration, failed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Invocations++
	if failed {
		f.stats.Errors++
	}
	f.stats.BilledMS += int64(math.Ceil(float64(took) / float64(time.Millisecond)))
}

// close refuses further work and returns the instances to stop.
func (f *function) close() []*instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return slices.Clone(f.instances)
}

func (f *function) list() []InstanceInfo {
	f.mu.Lock()
	instances := slices.Clone(f.instances)
	f.mu.Unlock()
	infos := make([]InstanceInfo, 0, len(instances))
	for _, inst := range instances {
		infos = append(infos, inst.info())
	}
	return infos
}
