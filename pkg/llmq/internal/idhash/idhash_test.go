package idhash

import (
	"regexp"
	"strings"
	"testing"
)

func hasher(t *testing.T, salt string) *Hasher {
	t.Helper()
	h, err := New(salt)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// DP5: a name tells nothing of its id, and is the same only under the same salt.
func TestHash_IsKeyed(t *testing.T) {
	t.Parallel()
	a, b := hasher(t, "salt-one"), hasher(t, "salt-two")
	got := a.Hash("user-7@example.com")
	if !regexp.MustCompile(`^[a-z2-7]{16}$`).MatchString(got) {
		t.Errorf("name = %q", got)
	}
	if got != hasher(t, "salt-one").Hash("user-7@example.com") {
		t.Error("the same id under the same salt got two names")
	}
	if got == b.Hash("user-7@example.com") || got == a.Hash("user-8@example.com") {
		t.Error("another salt or id got the same name")
	}
	if a.Hash("") != "" {
		t.Error("no id got a name")
	}
}

func TestNew_Salts(t *testing.T) {
	t.Parallel()
	if _, err := New("short"); err == nil || strings.Contains(err.Error(), "short\"") {
		t.Errorf("a short salt: %v", err)
	}
	long := strings.Repeat("x", 65)
	if hasher(t, long).Hash("a") == hasher(t, long+"y").Hash("a") {
		t.Error("the end of a long salt does not count")
	}
}
