package llmq_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Ids are stored in queues, keys and objects: another value would be another name. The
// golden was computed apart from this code, by the rule in SECURITY-DESIGN 0.2.
func TestIDs_AreStable(t *testing.T) {
	t.Parallel()
	golden(t, "ids.txt", []byte(string(llmq.NewRID("team-a", "req-1"))+"\n"+llmq.TenantHash("team-a")+"\n"))
}

func TestRID_KeepsTenantsAndIDsApart(t *testing.T) {
	t.Parallel()
	seen := map[llmq.RID][2]string{}
	for _, p := range [][2]string{{"a", "b"}, {"b", "a"}, {"ab", ""}, {"", "ab"}, {"a", "bc"}, {"ab", "c"}, {"a-b", "c"}} {
		rid := llmq.NewRID(p[0], p[1])
		if other, ok := seen[rid]; ok {
			t.Errorf("%v and %v have one RID", p, other)
		}
		seen[rid] = p
	}
}

func TestNewID_IsRandomAndLegal(t *testing.T) {
	t.Parallel()
	a, b := llmq.NewID(), llmq.NewID()
	if a == b || !regexp.MustCompile(`^req_[a-z2-7]{26}$`).MatchString(a) {
		t.Errorf("ids %q and %q", a, b)
	}
	if err := llmq.CheckID("id", a); err != nil {
		t.Errorf("our own id is refused: %v", err)
	}
}

func TestCheckID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "A-Z_09.:", strings.Repeat("x", 128)} {
		if err := llmq.CheckID("id", id); err != nil {
			t.Errorf("%q is refused: %v", id, err)
		}
	}
	for _, id := range []string{"", "a b", "é", "a/b", "a\n", "{a}", "a*", strings.Repeat("x", 129)} {
		if e := llmq.AsError(llmq.CheckID("Idempotency-Key", id)); e == nil || e.Code != llmq.CodeInvalidRequest || e.Field != "Idempotency-Key" {
			t.Errorf("%.40q: %v, want invalid_request at the header", id, e)
		}
	}
}

func TestCheckTenant(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "team-1", strings.Repeat("x", 48)} {
		if err := llmq.CheckTenant(name); err != nil {
			t.Errorf("%q is refused: %v", name, err)
		}
	}
	for _, name := range []string{"", "A", "a_b", "a b", "é", strings.Repeat("x", 49), "*"} {
		if e := llmq.AsError(llmq.CheckTenant(name)); e == nil || e.Field != "tenant" {
			t.Errorf("%.40q: %v, want an error at tenant", name, e)
		}
	}
}
