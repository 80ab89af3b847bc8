package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// E6: what limits a target is told in full where there is room for it.
func TestStatus_TellsWhatLimits(t *testing.T) {
	t.Parallel()
	var st statusAnswer
	if err := json.Unmarshal([]byte(`{"queues":[{"queue":"q","model":"m","lane":"bg","error":"no depth"}],"targets":[
		{"target":"m@a","caps":{"rpm":60,"tpm":600,"provider_rpm":100,"provider_tpm":1000},"limit":5,"limit_is":"learned","in_use":3,"lanes":{"rt":2,"bg":1,"bulk":0},
		 "waiting":1,"learned":"5 slots learned (binding)","breaker":"open","open_for_ms":12000,"ended":{"ok":7,"throttled":2,"failed":1},"quarantine_ms":9000,
		 "budgets":{"rpm_left":0,"tpm_left":60,"shared_rpm_left":9,"shared_tpm_left":99}}],
		"sources":[{"queue":"q","state":"Disabled","paused":true,"max_concurrency":2,"ceiling":10,"governor":{"want":4,"moves":true,"reason":"raised"}}]}`), &st); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, table := range statusTables(st) {
		text.WriteString(table.Render(300, false))
	}
	for _, want := range []string{
		"no depth", "disabled     2/10  wants 4: raised", "3/5  rt 2, bg 1  learned", "0 of 60  60 of 600    9 of 100  99 of 1000  open 12s",
		"nothing starts for 9s: the state store is new", "5 slots learned (binding)",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

func TestProgress_IsABarOnATerminalAndLinesElse(t *testing.T) {
	t.Parallel()
	page := admin.Redriven{Moved: 18, Left: 40, Reasons: map[string]int{"timeout": 20}}
	for terminal, want := range map[bool]string{
		true:  "\r[" + strings.Repeat("#", 15) + strings.Repeat(".", 15) + "] 20 of about 40 looked at, 18 sent again\n",
		false: "18 of about 40 sent again\n",
	} {
		var out strings.Builder
		bar := progress{a: &app{streams: streams{err: &out, errTerminal: terminal}, env: map[string]string{"NO_COLOR": "1"}}}
		bar.step(page)
		bar.end()
		if out.String() != want {
			t.Errorf("terminal %v: %q", terminal, out.String())
		}
	}
}

func TestVersion_SaysTheBuild(t *testing.T) {
	t.Parallel()
	var b build
	if err := json.Unmarshal([]byte(invoke(t, at{}, "version").out), &b); err != nil || !strings.HasPrefix(b.Go, "go1") {
		t.Errorf("build = %+v, %v", b, err)
	}
	if got := invoke(t, at{width: 80}, "version"); got.code != 0 || !strings.HasPrefix(got.out, "llmq ") {
		t.Errorf("got %+v", got)
	}
}

// E4: what does not go by the queue is told, and nothing of what does; and so is a cap that was set live.
func TestStatus_TellsWhatIsNotAsUsual(t *testing.T) {
	t.Parallel()
	if rows := routeRows(admin.RoutingView{Models: []admin.ModelRouting{{Model: "a", Mode: config.RoutingQueue}}}); len(rows) != 0 {
		t.Errorf("of queued models: %v", rows)
	}
	var told []string
	for _, row := range routeRows(admin.RoutingView{Killed: true, Fault: "f", Models: []admin.ModelRouting{
		{Model: "a", Mode: config.RoutingAuto}, {Model: "b", Mode: config.RoutingDirect, QueuePercent: 10}, {Model: "c", Mode: config.RoutingQueue, FailoverMS: 61_000},
	}}) {
		told = append(told, row[0].Text+": "+row[1].Text)
	}
	want := []string{
		": can't be told: f", "all: the kill switch is on: nothing is queued", "a: auto", "b: direct, but 10 % of sessions queue",
		"c: its queue takes nothing: live calls run at the door for 1m1s",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	for from, want := range map[config.Source]string{
		"": "learned", config.FromEnvModel: "learned", config.FromLiveModel: "learned, cap set live", config.FromEnv: "learned, cap of a variable",
	} {
		if got := limitedBy(admin.TargetStatus{CapFrom: from, TargetUse: &admin.TargetUse{LimitIs: admin.LimitLearned}}); got != want {
			t.Errorf("%s: %q, want %q", from, got, want)
		}
	}
}
