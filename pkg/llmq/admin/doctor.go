package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// Verdict is what a check found.
type Verdict string

// The verdicts.
const (
	OK      Verdict = "ok"
	Warn    Verdict = "warn" // it works, and is worth a look
	Fail    Verdict = "fail"
	Skipped Verdict = "skipped" // it could not be looked at; Detail says why
)

// Finding is what one check found of one subject.
type Finding struct {
	Check   string  `json:"check"`             // what was looked at: "state store", "lane"
	Subject string  `json:"subject,omitempty"` // of what: a queue, a model
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail,omitempty"`
	Next    string  `json:"next,omitempty"` // what to do about it
}

// DoctorRequest asks for a look at everything.
type DoctorRequest struct {
	// NewStore says that the state store is known to be new: then nothing waits until calls that a wiped one has forgotten
	// have registered (FEATURES C12). Said of a store that was wiped, it lets caps be exceeded for a minute.
	NewStore bool `json:"new_store"`
}

// Diagnosis is what was found, and what only who has rights of their own on AWS can look at.
type Diagnosis struct {
	Findings   []Finding  `json:"findings"`
	Deployment Deployment `json:"deployment"`
}

// Deployment is what a diagnosis of AWS itself needs to know. It names secrets and holds none.
type Deployment struct {
	Kind        config.Kind      `json:"kind"`
	Region      string           `json:"region,omitempty"`
	Account     string           `json:"account,omitempty"`
	Concurrency int              `json:"concurrency"` // invocations at once that all event sources together may have
	Bedrock     []BedrockTarget  `json:"bedrock,omitempty"`
	Secrets     []SecretRef      `json:"secrets,omitempty"`
	Producers   []DoctorProducer `json:"producers,omitempty"`
	Queues      []queue.Name     `json:"queues"`
}

// BedrockTarget is a target that Bedrock serves.
type BedrockTarget struct {
	Target  string `json:"target"` // alias@target
	ModelID string `json:"model_id"`
	Region  string `json:"region"`
}

// SecretRef is a secret that the configuration refers to.
type SecretRef struct {
	Setting string `json:"setting"`
	ARN     string `json:"arn"`
}

// DoctorProducer is a service that sends to the queues itself.
type DoctorProducer struct {
	Name    string `json:"name"`
	RoleARN string `json:"role_arn"`
}

// DoctorDeps are what the doctor looks at; all are required.
type DoctorDeps struct {
	Config *config.Config
	Space  keys.Space
	Pepper func(context.Context) error                  // reads the secret that callers' keys are sealed with
	Keys   func(context.Context) (some bool, err error) // reads the state bucket: whether there is a key
}

// Doctor looks at a deployment with the rights of the admin function. It is safe for concurrent use.
type Doctor struct {
	op   *Operator
	deps DoctorDeps
}

// NewDoctor makes the verb.
func NewDoctor(o *Operator, d DoctorDeps) *Doctor { return &Doctor{o, d} }

// Diagnose looks at everything once. It sends a message through each queue whose event source is on; its deadline has passed,
// so that a worker takes it and stores that it has expired, and no provider is called.
func (d *Doctor) Diagnose(ctx context.Context, by string, r DoctorRequest) (Diagnosis, error) {
	out := Diagnosis{Deployment: d.deployment()}
	add := func(f ...Finding) { out.Findings = append(out.Findings, f...) }
	store := d.store(ctx, r.NewStore)
	add(store...)
	add(d.pepper(ctx), d.keys(ctx))
	queues := d.op.Queues(ctx)
	for _, q := range queues {
		add(lookAtQueue(q)...)
	}
	add(d.targets(ctx)...)
	if store[0].Verdict == Fail {
		add(Finding{Check: "lane", Verdict: Skipped, Detail: "no message was sent: without the state store none is answered"})
	} else {
		add(d.probes(ctx, queues)...)
	}
	failed := 0
	for _, f := range out.Findings {
		if f.Verdict == Fail {
			failed++
		}
	}
	did := deed{by: by, verb: "doctor", args: []any{"findings", len(out.Findings), "failed", failed, "new_store", r.NewStore}}
	if r.NewStore { // nothing else changes what holds
		return out, d.op.deps.Trail.record(ctx, did, nil)
	}
	did.log(ctx, d.op.deps.Trail.Log, nil)
	return out, nil
}

// What a round trip to the state store may take before it is worth a look: a call makes about seven.
const (
	storeSamples = 5
	slowStore    = 20 * time.Millisecond
)

// store looks at the state store's rights and its latency.
func (d *Doctor) store(ctx context.Context, isNew bool) []Finding {
	const check = "state store"
	if isNew {
		if err := capacity.PresetStore(ctx, d.op.Valkey, d.deps.Config.Env); err != nil {
			return []Finding{storeFault(check, "mark as new", err)}
		}
	}
	took := make([]time.Duration, storeSamples)
	for i := range took {
		began := time.Now()
		if err := d.op.Valkey.Time(ctx).Err(); err != nil {
			return []Finding{storeFault(check, "round trip", err)}
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	f := Finding{
		Check: check, Subject: "round trip", Verdict: OK,
		Detail: fmt.Sprintf("%.1f ms, the slowest of %d %.1f ms", ms(took[storeSamples/2]), storeSamples, ms(took[storeSamples-1])),
	}
	if took[storeSamples/2] > slowStore {
		f.Verdict, f.Next = Warn, "a call makes about seven round trips: put functions and cache into one region and network"
	}
	return []Finding{f}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func storeFault(check, subject string, err error) Finding {
	f := Finding{Check: check, Subject: subject, Verdict: Fail, Detail: llmq.Clip(err.Error(), 200), Next: "see whether it runs and, on AWS, whether its security group lets the functions in"}
	switch {
	case strings.HasPrefix(err.Error(), "NOPERM"):
		f.Next = "the function's user of the cache lacks a right: deploy the stack again, so that both are of one release"
	case strings.HasPrefix(err.Error(), "WRONGPASS"), strings.HasPrefix(err.Error(), "NOAUTH"):
		f.Next = "the function may not sign in: its role needs elasticache:Connect on the cache and on its user"
	}
	return f
}

// pepper looks at the one secret that this function itself reads; the others are their functions'.
func (d *Doctor) pepper(ctx context.Context) Finding {
	f := Finding{Check: "secret", Subject: "key_pepper", Verdict: OK, Detail: "readable"}
	if err := d.deps.Pepper(ctx); err != nil {
		f.Verdict, f.Detail = Fail, llmq.Clip(llmq.AsError(err).Error(), 200)
		f.Next = "give the secret a value, and the function's role secretsmanager:GetSecretValue on it"
	}
	return f
}

func (d *Doctor) keys(ctx context.Context) Finding {
	f := Finding{Check: "keys", Subject: "state bucket", Verdict: OK, Detail: "readable"}
	switch some, err := d.deps.Keys(ctx); {
	case err != nil:
		f.Verdict, f.Detail = Fail, llmq.Clip(llmq.AsError(err).Error(), 200)
		f.Next = "see whether the bucket is there and the function's role may read keys/ in it"
	case !some:
		f.Verdict, f.Detail, f.Next = Warn, "nobody has a key", "llmq keys create"
	}
	return f
}

// lookAtQueue tells of a queue what is wrong, or that nothing is.
func lookAtQueue(q QueueState) []Finding {
	found := func(v Verdict, detail, next string) Finding {
		return Finding{Check: "queue", Subject: string(q.Queue), Verdict: v, Detail: detail, Next: next}
	}
	var out []Finding
	if q.Error != "" {
		out = append(out, found(Fail, q.Error, "see whether the queue is there: deploy the stack again"))
	} else if q.DeadLetters > 0 {
		out = append(out, found(Warn, fmt.Sprintf("dead letters: %d", q.DeadLetters), "llmq queues dead "+string(q.Queue)+" shows why"))
	}
	switch {
	case q.Source.Error != "":
		out = append(out, found(Fail, q.Source.Error, "its event source can't be read: deploy the stack again"))
	case q.Source.Paused:
		out = append(out, found(Warn, "it is paused: calls wait until it is resumed or their deadline passes", "llmq queues resume "+string(q.Queue)))
	}
	if len(out) == 0 {
		out = append(out, found(OK, "", ""))
	}
	return out
}

// targets looks at what is known of each: that it can be read proves the rights of scripts.
func (d *Doctor) targets(ctx context.Context) []Finding {
	var out []Finding
	for _, t := range d.op.Status(ctx).Targets {
		f := Finding{Check: "capacity", Subject: t.Target, Verdict: OK}
		switch {
		case t.TargetUse == nil:
			f.Verdict, f.Detail, f.Next = Fail, t.Error, "see what is found of the state store"
		case t.QuarantineMS > 0:
			f.Verdict, f.Detail = Warn, fmt.Sprintf("nothing starts for %d s: the state store is new, or was wiped", (t.QuarantineMS+999)/1000)
			f.Next = "wait; or, if no call was in flight, llmq doctor --new-store"
		case t.Breaker == capacity.BreakerOpen:
			f.Verdict, f.Detail, f.Next = Warn, "its breaker is open: calls at it fail", "llmq breaker tells for how long; the workers' log has the provider's answers"
		}
		out = append(out, f)
	}
	return out
}

// probes sends a message through each queue that is fed to a worker, side by side.
func (d *Doctor) probes(ctx context.Context, queues []QueueState) []Finding {
	out := make([]Finding, len(queues))
	var wg sync.WaitGroup
	for i, q := range queues {
		wg.Go(func() { out[i] = d.probe(ctx, q) })
	}
	wg.Wait()
	return out
}

const (
	// probeWithin bounds the wait for a worker: a cold one has to start.
	probeWithin = 15 * time.Second
	probeEvery  = 100 * time.Millisecond
)

func (d *Doctor) probe(ctx context.Context, q QueueState) Finding {
	f := Finding{Check: "lane", Subject: string(q.Queue), Verdict: OK}
	if q.Source.Paused || q.Source.Error != "" || q.Error != "" {
		f.Verdict, f.Detail = Skipped, "no message was sent: see what is found of the queue"
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	id, began := "doctor-"+llmq.NewID(), time.Now()
	body, err := probeOf(q, d.wires(q.Model), id).Encode()
	if err == nil {
		err = d.op.deps.Queue.Send(ctx, q.Queue, queue.Outgoing{Body: body, Group: llmq.TenantHash(llmq.DoctorTenant)})
	}
	if err != nil {
		f.Verdict, f.Detail, f.Next = Fail, llmq.Clip(llmq.AsError(err).Error(), 200), "the message could not be sent: see whether the queue's policy lets this function's role send"
		return f
	}
	code, err := d.await(ctx, id)
	switch {
	case err != nil && q.Waiting > 0:
		f.Verdict, f.Detail = Warn, fmt.Sprintf("no answer within %v: about %d messages wait before it", probeWithin, q.Waiting)
		f.Next = "llmq status --watch shows whether they go down"
	case err != nil:
		f.Verdict, f.Detail = Fail, fmt.Sprintf("no answer within %v: %v", probeWithin, llmq.Clip(err.Error(), 120))
		f.Next = "look at the log of " + d.op.deps.Lanes[q.Lane].Worker + ": it can't start, or does not get the queue's messages"
	case code != llmq.CodeExpired:
		f.Verdict, f.Detail, f.Next = Warn, "the message ended as "+string(cmp.Or(code, "a reply")), "the worker is of another release: deploy the stack again"
	default:
		f.Detail = fmt.Sprintf("a message was taken and answered in %.0f ms", ms(time.Since(began)))
	}
	return f
}

// probeOf is a message whose deadline has passed. It is well formed, or it would become a dead letter.
func probeOf(q QueueState, wires []llmq.Wire, id string) llmq.Envelope {
	e := llmq.Envelope{ID: id, Op: llmq.OpChat, Model: q.Model, Lane: q.Lane, Tenant: llmq.DoctorTenant, Deadline: time.Now().Add(-time.Second)}
	switch {
	case slices.Contains(wires, llmq.WireOpenAI):
		e.Params = fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"llmq doctor"}]}`, q.Model)
	case slices.Contains(wires, llmq.WireConverse):
		e.Op, e.Params = llmq.OpConverse, []byte(`{"messages":[{"role":"user","content":[{"text":"llmq doctor"}]}]}`)
	default:
		e.Op, e.Params = llmq.OpInvoke, []byte(`{}`)
	}
	return e
}

// wires are what the first target of a model speaks.
func (d *Doctor) wires(alias string) []llmq.Wire {
	for _, m := range d.op.Catalogue.Models() {
		if m.Alias == alias && len(m.Targets) > 0 {
			return m.Targets[0].Wires
		}
	}
	return nil
}

// await waits until it is stored how the doctor's request ended, and tells how.
func (d *Doctor) await(ctx context.Context, id string) (llmq.Code, error) {
	rid := llmq.NewRID(llmq.DoctorTenant, id)
	key := d.deps.Space.Call(llmq.DoctorTenant, rid).Result
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	last := context.DeadlineExceeded
	for {
		select {
		case <-ctx.Done():
			return "", last
		case <-tick.C:
		}
		var b luascript.Batch
		call := b.Command("GET", key)
		if err := b.Run(ctx, d.op.Valkey); err != nil {
			last = err
			continue
		}
		text, ok, err := call.Text()
		if err != nil {
			return "", err
		}
		if !ok {
			continue
		}
		res, _, err := llmq.DecodeResult([]byte(text), rid, llmq.DoctorTenant)
		if err != nil {
			return "", err
		}
		if res.Err == nil {
			return "", nil
		}
		return res.Err.Code, nil
	}
}

func (d *Doctor) deployment() Deployment {
	c := d.deps.Config
	out := Deployment{Kind: c.Kind, Region: c.Region, Account: c.Queues.Account(), Queues: c.QueueNames()}
	for _, p := range d.op.places() {
		out.Concurrency += d.op.deps.Lanes[p.lane].MaxConcurrency
	}
	providers := map[string]config.Provider{}
	secret := func(setting string, s config.Secret) {
		if s.ARN != "" {
			out.Secrets = append(out.Secrets, SecretRef{setting, s.ARN})
		}
	}
	secret("key_pepper", c.KeyPepper)
	secret("id_hash_salt", c.IDSalt)
	for _, p := range c.Providers {
		providers[p.Name] = p
		secret("providers."+p.Name+".api_key", p.APIKey)
	}
	for _, m := range c.Models {
		for _, t := range m.Targets {
			if p := providers[t.Provider]; p.Type == config.ProviderBedrock && p.APIKey.IsZero() {
				out.Bedrock = append(out.Bedrock, BedrockTarget{Target: m.Alias + "@" + t.Name, ModelID: t.ModelID, Region: cmp.Or(p.Region, c.Region)})
			}
		}
	}
	for _, p := range c.Producers {
		if p.RoleARN != "" {
			out.Producers = append(out.Producers, DoctorProducer{p.Name, p.RoleARN})
		}
	}
	return out
}
