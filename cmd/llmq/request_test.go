package main

import "testing"

// Where a call's lines are: on this machine in what make run prints, on AWS in its worker's group.
func TestRequest_SaysWhereLogsAre(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a    app
		want string
	}{
		{app{local: true}, "those of llmq-worker-bg in what make run RUNFLAGS=-v prints"},
		{app{envName: "prod"}, `{ $.request_id = "report-7" } in /aws/lambda/llmq-prod-worker-bg`},
		{app{}, `{ $.request_id = "report-7" } in /aws/lambda/llmq-ENV-worker-bg`},
	} {
		if got := tt.a.logs("report-7", "worker-bg"); got != tt.want {
			t.Errorf("logs are %s, want %s", got, tt.want)
		}
	}
}

// An id that is empty, as a shell's unset variable is, is told as such, and asks nobody.
func TestRequest_AnEmptyIDIsNone(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{{"request", "show"}, {"request", "result"}, {"request", "cancel"}, {"job", "status"}, {"job", "result"}, {"job", "cancel"}} {
		got := invoke(t, at{width: 80, env: []string{"OPENAI_BASE_URL=http://127.0.0.1:1/v1"}}, append(command, "")...)
		if want := "llmq: which call? the id is empty\n"; got.code != 2 || len(got.err) < len(want) || got.err[:len(want)] != want {
			t.Errorf("%v: code %d, %q", command, got.code, got.err)
		}
	}
}
