package claims

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/local/bench/turns"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
)

// run adds one call to a batch, runs it, and returns its answer.
func run[T any](t testing.TB, c redis.UniversalClient, add func(b *luascript.Batch) luascript.Pending[T]) (T, error) {
	t.Helper()
	var b luascript.Batch
	pending := add(&b)
	if err := b.Run(t.Context(), c); err != nil {
		t.Fatalf("run: %v", err)
	}
	return pending()
}

func request() llmq.Request {
	return llmq.Request{
		ID: "r", Tenant: "t", Op: llmq.OpChat, Model: llmq.ModelRef{Alias: "m"}, Lane: llmq.LaneRT,
		Deadline: time.UnixMilli(time.Now().Add(time.Minute).UnixMilli()), Body: []byte(`{"a":1}`),
	}
}

func TestStore_ALifeOfAClaim(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		s, r := New(luatest.Space()), request()
		take := func(owner string) Take {
			got, err := run(t, c, func(b *luascript.Batch) luascript.Pending[Take] { return s.Take(b, r, BodyHash(r), owner) })
			if err != nil {
				t.Fatalf("take: %v", err)
			}
			return got
		}
		done := func() bool {
			got, err := run(t, c, func(b *luascript.Batch) luascript.Pending[bool] { return s.Done(b, r) })
			if err != nil {
				t.Fatalf("done: %v", err)
			}
			return got
		}
		if done() {
			t.Error("a request that nobody took is done")
		}
		a := take("A")
		if a.State != Taken || a.Claim.Fence != 1 {
			t.Fatalf("take = %+v", a)
		}
		progress := Progress{Attempts: 5, Step: 2, Spent: 3, Tries: 2, Throttled: 1, Cut: 1, Provided: 1234 * time.Millisecond}
		if b := take("B"); b.State != Busy || b.Wait <= Lease-10*time.Second || b.Wait > Lease {
			t.Errorf("second take = %+v, want it busy for the lease", b)
		}
		if got, err := run(t, c, func(b *luascript.Batch) luascript.Pending[Hold] {
			return s.Renew(b, a.Claim, Progress{Attempts: 1}, false)
		}); err != nil || got != Kept {
			t.Errorf("renew = %v, %v", got, err)
		}
		if got, err := run(t, c, func(b *luascript.Batch) luascript.Pending[Hold] { return s.Defer(b, a.Claim, time.Minute, progress) }); err != nil || got != Kept {
			t.Errorf("defer = %v, %v", got, err)
		}
		if b := take("B"); b.State != Deferred || b.Wait <= 50*time.Second || b.Wait > time.Minute || b.Claim.Progress != progress {
			t.Errorf("take of a deferred claim = %+v", b)
		}
		if got, err := run(t, c, func(b *luascript.Batch) luascript.Pending[Hold] { return s.Defer(b, a.Claim, -time.Second, progress) }); err != nil || got != Kept {
			t.Errorf("defer for no time = %v, %v", got, err)
		}
		second := take("B")
		if second.State != Taken || second.Claim.Fence != 2 || second.Claim.Progress != progress || second.Claim.Takeovers != 0 {
			t.Fatalf("take after the deferral = %+v", second)
		}
		if got, err := run(t, c, func(b *luascript.Batch) luascript.Pending[Hold] { return s.Finish(b, a.Claim, []byte("old"), false) }); err != nil || got != Lost {
			t.Errorf("the former owner's finish = %v, %v; want it lost", got, err)
		}
		if got, err := run(t, c, func(b *luascript.Batch) luascript.Pending[Hold] {
			return s.Renew(b, a.Claim, Progress{Attempts: 1}, false)
		}); err != nil || got != Lost {
			t.Errorf("the former owner's renewal = %v, %v; want it lost", got, err)
		}
		other := r
		other.Body = []byte(`{"a":2}`)
		if got, err := run(t, c, func(b *luascript.Batch) luascript.Pending[Take] { return s.Take(b, other, BodyHash(other), "C") }); err != nil || got.State != Mismatch {
			t.Errorf("take for another body = %+v, %v; want a mismatch", got, err)
		}
		result := []byte("{\"x\":\"\x00\xff raw\"}")
		if got, err := run(t, c, func(b *luascript.Batch) luascript.Pending[Hold] { return s.Finish(b, second.Claim, result, false) }); err != nil || got != Kept {
			t.Errorf("finish = %v, %v", got, err)
		}
		stored, err := c.Get(t.Context(), s.keys.Call("t", r.RID()).Result).Bytes()
		if diff := cmp.Diff(result, stored); diff != "" || err != nil {
			t.Errorf("stored: %v (-want +got):\n%s", err, diff)
		}
		if last := take("C"); last.State != Stored || !done() {
			t.Errorf("take of an ended request = %+v, done %v", last, done())
		}
	})
}

func TestStore_SubmissionOfAnID(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		s, r := New(luatest.Space()), request()
		submit := func(r llmq.Request) (Submission, error) {
			return run(t, c, func(b *luascript.Batch) luascript.Pending[Submission] { return s.Submit(b, r, BodyHash(r)) })
		}
		first, err := submit(r)
		if diff := cmp.Diff(Submission{Deadline: r.Deadline}, first); diff != "" || err != nil {
			t.Errorf("first: %v (-want +got):\n%s", err, diff)
		}
		later := r
		later.Deadline, later.Body = r.Deadline.Add(time.Minute), []byte("{ \"a\" : 1 }\n")
		again, err := submit(later)
		if diff := cmp.Diff(Submission{Known: true, Deadline: r.Deadline}, again); diff != "" || err != nil {
			t.Errorf("again: %v (-want +got):\n%s", err, diff)
		}
		if ok, err := run(t, c, func(b *luascript.Batch) luascript.Pending[bool] { return s.MarkSent(b, r) }); err != nil || !ok {
			t.Errorf("mark sent = %v, %v", ok, err)
		}
		if again, err := submit(r); err != nil || !again.Sent {
			t.Errorf("after the send: %+v, %v; want it sent", again, err)
		}
		changed := r
		changed.Body = []byte(`{"a":2}`)
		if _, err := submit(changed); !errors.Is(err, llmq.CodeIdempotencyMismatch) {
			t.Errorf("another body = %v, want idempotency_mismatch", err)
		}
		foreign := r
		foreign.Tenant = "u"
		if got, err := submit(foreign); err != nil || got.Known {
			t.Errorf("another tenant's same id = %+v, %v; want it new", got, err)
		}
		if ok, err := run(t, c, func(b *luascript.Batch) luascript.Pending[bool] {
			return s.MarkSent(b, llmq.Request{ID: "gone", Tenant: "t"})
		}); err != nil || ok {
			t.Errorf("mark sent without a record = %v, %v; want false", ok, err)
		}
	})
}

// H10 c: key order and spacing do not make another body; everything else does.
func TestBodyHash_KnowsTheSameBody(t *testing.T) {
	t.Parallel()
	base := request()
	base.Body = []byte(`{"a":1,"b":{"x":[1,2],"y":"é"}}`)
	with := func(change func(*llmq.Request)) llmq.Request {
		r := base
		change(&r)
		return r
	}
	body := func(s string) llmq.Request { return with(func(r *llmq.Request) { r.Body = []byte(s) }) }
	for name, r := range map[string]llmq.Request{
		"order":         body(`{"b":{"y":"é","x":[1,2]},"a":1}`),
		"spacing":       body("\n{ \"a\" : 1 ,\t\"b\":{\"x\":[ 1, 2 ],\"y\":\"é\"} }\r\n"),
		"escapes":       body(`{"a":1,"b":{"x":[1,2],"y":"\u00e9"}}`),
		"deadline":      with(func(r *llmq.Request) { r.Deadline = r.Deadline.Add(time.Hour) }),
		"lane and user": with(func(r *llmq.Request) { r.Lane, r.User = llmq.LaneBulk, "u" }),
	} {
		if BodyHash(r) != BodyHash(base) {
			t.Errorf("%s makes another body", name)
		}
	}
	seen := map[string]string{BodyHash(base): "base"}
	for name, r := range map[string]llmq.Request{
		"value":         body(`{"a":2,"b":{"x":[1,2],"y":"é"}}`),
		"number's form": body(`{"a":1.0,"b":{"x":[1,2],"y":"é"}}`),
		"exponent":      body(`{"a":1e0,"b":{"x":[1,2],"y":"é"}}`),
		"large number":  body(`{"a":12345678901234567890,"b":{"x":[1,2],"y":"é"}}`),
		"its neighbour": body(`{"a":12345678901234567891,"b":{"x":[1,2],"y":"é"}}`),
		"array's order": body(`{"a":1,"b":{"x":[2,1],"y":"é"}}`),
		"member":        body(`{"a":1,"b":{"x":[1,2],"y":"é"},"c":null}`),
		"text's spaces": body(`{"a":1,"b":{"x":[1,2],"y":"é "}}`),
		"no JSON":       body(`{"a":`),
		"op":            with(func(r *llmq.Request) { r.Op = llmq.OpEmbeddings }),
		"model":         with(func(r *llmq.Request) { r.Model.Alias = "n" }),
		"target":        with(func(r *llmq.Request) { r.Model.Target = "x" }),
	} {
		h := BodyHash(r)
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have one hash", name, other)
		}
		seen[h] = name
	}
}

func TestBodyHash_LeavesTheBodyAsItIs(t *testing.T) {
	t.Parallel()
	r := request()
	r.Body = []byte("{ \"b\":1, \"a\":2 }")
	want := string(r.Body)
	BodyHash(r)
	if string(r.Body) != want {
		t.Errorf("the body became %q", r.Body)
	}
}

// BenchmarkTakeAndFinish_AgainstBareScripts holds a claim that is taken and finished against two scripts of one command that carry as
// much, in turns. make bench-check compares what it reports.
func BenchmarkTakeAndFinish_AgainstBareScripts(b *testing.B) {
	c := servers.Dial(b, true)
	s, r := New(luatest.Space()), request()
	result := make([]byte, 2000)
	bare := luascript.New("bare", "#!lua\nreturn {redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000) and 1}\n")
	for b.Loop() {
		got := turns.Compare(b, 200, func(int) {
			r.ID = llmq.NewID()
			take, err := run(b, c, func(batch *luascript.Batch) luascript.Pending[Take] { return s.Take(batch, r, "h", r.ID) })
			if err != nil || take.State != Taken {
				b.Fatalf("take = %+v, %v", take, err)
			}
			kept, err := run(b, c, func(batch *luascript.Batch) luascript.Pending[Hold] {
				return s.Finish(batch, take.Claim, result, false)
			})
			if err != nil || kept != Kept {
				b.Fatalf("finish = %v, %v", kept, err)
			}
		}, func(int) {
			id := llmq.NewID()
			for _, body := range [][]byte{result[:100], result} {
				var batch luascript.Batch
				call := batch.Script(&bare, []string{"llmq:bench:{" + id + "}"}, body)
				if err := batch.Run(b.Context(), c); err != nil {
					b.Fatal(err)
				}
				if _, err := call.Ints(1); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.ReportMetric(got.Time, "x-bare-scripts")
		b.ReportMetric(got.Allocs, "allocs/call")
	}
}

func BenchmarkTakeAndFinish(b *testing.B) {
	for _, cluster := range []bool{false, true} {
		name := "valkey"
		if cluster {
			name = "valkey-cluster"
		}
		b.Run(name, func(b *testing.B) {
			c := servers.Dial(b, cluster)
			s, r := New(luatest.Space()), request()
			result := make([]byte, 2000)
			b.ReportAllocs()
			for b.Loop() {
				r.ID = llmq.NewID()
				take, err := run(b, c, func(batch *luascript.Batch) luascript.Pending[Take] { return s.Take(batch, r, "h", r.ID) })
				if err != nil || take.State != Taken {
					b.Fatalf("take = %+v, %v", take, err)
				}
				got, err := run(b, c, func(batch *luascript.Batch) luascript.Pending[Hold] {
					return s.Finish(batch, take.Claim, result, false)
				})
				if err != nil || got != Kept {
					b.Fatalf("finish = %v, %v", got, err)
				}
			}
		})
	}
}
