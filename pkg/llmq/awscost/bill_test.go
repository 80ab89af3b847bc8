package awscost

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// F6: each operation by its price, calls and hours apart. Of the day's polls and looks none is a call's.
func TestBill_ItemByItem(t *testing.T) {
	t.Parallel()
	p := prices(t)
	c := Counts{
		Seconds: month, Calls: 100, APIRequests: 200, APIBytesOut: 2e9, AdminRequests: 3,
		Functions: []Function{
			{Role: RoleWorker, MemoryMB: 512, Invocations: 10, BilledMS: 4000},
			{Role: RoleWorker, MemoryMB: 1024, Invocations: 5, BilledMS: 3000},
			{Role: RoleGovernor, MemoryMB: 1024, Invocations: 1, BilledMS: 1000},
		},
		SQS:           map[string]float64{"SendMessage": 100, "ReceiveMessage": 500, "DeleteMessageBatch": 10, "GetQueueAttributes": 7, "CreateQueue": 2},
		EmptyReceives: 460, Grouped: 100, S3Writes: 4, S3Reads: 5, ECPU: 2000, LogBytes: 3e9, MetricSeries: 6,
	}
	want := Bill{
		Calls: []Item{
			{"API Gateway", 200, "requests", 200 * 3.5e-6},
			{"worker", 15, "invocations", 15 * 0.2e-6},
			{"worker", 5, "GB-s", 5 * 0.0000133334},
			{"SQS", 150, "requests of 64 KB", 150 * 0.4e-6},
			{"SQS, fair", 100, "messages", 100 * 0.1e-6},
			{"state store", 2000, "ECPU", 2000 * 0.0023e-6},
			{"S3", 4, "writes", 4 * 5e-6},
			{"S3", 5, "reads", 5 * 0.4e-6},
			{"logs", 3e9, "bytes", 1.5},
			{"replies to the internet", 2e9, "bytes", 0.18},
		},
		Hours: []Item{
			{"governor", 1, "invocations", 0.2e-6},
			{"governor", 1, "GB-s", 0.0000133334},
			{"SQS, idle polls", 460, "receives", 460 * 0.4e-6},
			{"SQS, looks", 9, "requests", 9 * 0.4e-6},
			{"admin API", 3, "requests", 3 * 3.5e-6},
			{"own metrics", 6, "series", 1.8},
		},
	}
	near := cmpopts.EquateApprox(1e-9, 0)
	if diff := cmp.Diff(want, p.Bill(c), near); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	million := p.Million(c)
	if got, want := Total(million), Total(want.Calls)*1e4; math.Abs(got-want) > 1e-9*want {
		t.Errorf("a million costs $%g, want $%g", got, want)
	}
	c.Calls = 0
	if b := p.Bill(c); len(b.Calls) > 0 || len(b.Hours) != len(want.Calls)+len(want.Hours) {
		t.Errorf("without a call all is by the hour: %+v", b)
	}
	if got := p.Million(c); got == nil || len(got) > 0 {
		t.Errorf("a million of none: %v", got)
	}
}

// A minute that goes as the formula says makes the formula's month, whatever else stands.
func TestMonth_CountedMinuteScales(t *testing.T) {
	t.Parallel()
	p, s := prices(t), Standing{Queues: 9, Alarms: 10, Secrets: 2, Governor: true, WAF: true}
	minute := Counts{
		Seconds: 60, EmptyReceives: 9 * 15, SQS: map[string]float64{"ReceiveMessage": 9 * 15, "GetQueueAttributes": 9},
		Functions: []Function{{Role: RoleGovernor, MemoryMB: 256, Invocations: 1, BilledMS: 300}},
	}
	if diff := cmp.Diff(p.Month(s, s.Idle()), p.Month(s, minute), cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		t.Errorf("(-formula +counted):\n%s", diff)
	}
}

func TestShape_TellsTheLevers(t *testing.T) {
	t.Parallel()
	u := Usual()
	u.Batch, u.Parallel = 5, 4
	got := u.Counts().Shape()
	want := Shape{CallSeconds: 10, APIRequests: 1, DoorSeconds: 10, Batch: 5, AtOnce: 4, WorkerSeconds: 2.5, SQSRequests: 5, ECPU: u.ECPU, LogBytes: 1000 * u.LogKB}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := (Counts{APIRequests: 1}).Shape(); got != (Shape{}) {
		t.Errorf("without a call: %+v", got)
	}
}

// What a lever gives is what the calls cost that are like that to begin with.
func TestLevers_AreTheOtherTraffic(t *testing.T) {
	t.Parallel()
	p, u := prices(t), Usual()
	submitted, shared, small := u, u, u
	submitted.Waits, shared.Batch, shared.Parallel, small.DoorMB, small.WorkerMB = false, 10, 10, 128, 128
	got := map[string]float64{}
	for _, l := range p.Levers(u.Counts()) {
		got[l.Name] = l.USD
	}
	for name, like := range map[string]Traffic{
		"callers submit and ask later (bg, bulk: /llmq/v1/calls)":                submitted,
		"ten calls in a worker at a time (few workers: lanes.*.max_concurrency)": shared,
		"doors and workers with 128 MB":                                          small,
	} {
		if want := Total(p.Million(like.Counts())); math.Abs(got[name]-want) > 1e-9*want {
			t.Errorf("%s: $%g, want $%g", name, got[name], want)
		}
	}
	if usd, found := got["one call in a worker at a time (calls one by one, batch_size 1)"]; found {
		t.Errorf("what is so already is no lever: $%g", usd)
	}
	back := p.Levers(submitted.Counts())
	if back[0].Name != "callers wait at the door (rt)" || math.Abs(back[0].USD-Total(p.Million(u.Counts()))) > 1e-6 {
		t.Errorf("of calls that are submitted: %+v", back[0])
	}
}

// How long a call took decides most levers: where that is not known they are left out, not guessed.
func TestLevers_WithoutTheCallsTimeOnlyWhatIsKnown(t *testing.T) {
	t.Parallel()
	c := Usual().Counts()
	c.CallSeconds = 0
	var names []string
	for _, l := range prices(t).Levers(c) {
		names = append(names, l.Name)
	}
	want := []string{"callers submit and ask later (bg, bulk: /llmq/v1/calls)", "doors and workers with 128 MB", "bodies of 300 KB through S3"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := prices(t).Levers(Counts{}); got == nil || len(got) > 0 {
		t.Errorf("of no call: %v", got)
	}
}

// Five polls of 20 s at once: in less than a minute some have not ended yet.
func TestStatement_ShortSpanHasTheMonthByFormula(t *testing.T) {
	t.Parallel()
	p, s := prices(t), Standing{Queues: 2, Secrets: 2}
	for _, tt := range []struct {
		seconds float64
		counted bool
		polls   float64
	}{
		{59, false, 2 * 657_000},
		{60, true, 10 * 730 * 60},
	} {
		got := p.Statement(Reading{Counts: Counts{Seconds: tt.seconds, SQS: map[string]float64{"ReceiveMessage": 10}, EmptyReceives: 10}, Standing: &s})
		if got.MonthCounted != tt.counted || math.Abs(got.Month[0].Count-tt.polls) > 1 || math.Abs(got.MonthUSD-Total(got.Month)) > 1e-4 {
			t.Errorf("%g s: counted %v, %+v", tt.seconds, got.MonthCounted, got.Month)
		}
	}
}

func TestAmount_IsForPeople(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{0: "0", 0.00001234: "0.00001234", 0.25: "0.25", 5: "5", 1234567: "1234567", 999.96: "1000", 17.3333: "17.33"} {
		if got := Amount(x); got != want {
			t.Errorf("%g is written %s, want %s", x, got, want)
		}
	}
}
