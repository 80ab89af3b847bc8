package llmq_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Codes are API: this golden changes by additions only.
func TestCodes_Golden(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, c := range llmq.Codes() {
		fmt.Fprintf(&b, "%-22s %d retry=%v\n", c.Code, c.Status, c.Retry)
	}
	golden(t, "codes.txt", []byte(b.String()))
}

func TestCodes_EachSaysWhatHappenedAndWhatToDo(t *testing.T) {
	t.Parallel()
	form, seen := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`), map[llmq.Code]bool{}
	for _, c := range llmq.Codes() {
		if seen[c.Code] || !form.MatchString(string(c.Code)) {
			t.Errorf("%q is there twice or not of its form", c.Code)
		}
		seen[c.Code] = true
		if c.Status < 400 || c.Status > 599 || c.Means == "" || c.Do == "" {
			t.Errorf("%s lacks a status, a meaning or an advice: %+v", c.Code, c)
		}
		if c.Retry && c.Status != 429 && c.Status != 503 {
			t.Errorf("%s is retryable with status %d; SDKs repeat the whole request", c.Code, c.Status)
		}
		if c.Code.Info() != c {
			t.Errorf("%s: Info is %+v, want its row", c.Code, c.Code.Info())
		}
	}
}

func TestCodes_CallerCannotChangeTheTable(t *testing.T) {
	t.Parallel()
	llmq.Codes()[0].Status = 1
	if llmq.Codes()[0].Status == 1 {
		t.Error("the table is the caller's to change")
	}
}

func TestCode_UnknownGetsTheInternalRowUnderItsName(t *testing.T) {
	t.Parallel()
	got, want := llmq.Code("from_the_future").Info(), llmq.CodeInternal.Info()
	want.Code = "from_the_future"
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
