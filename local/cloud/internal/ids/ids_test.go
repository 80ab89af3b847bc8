package ids

import (
	"regexp"
	"testing"
)

func TestUUID_IsRandomAndOfVersion4(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 1000 {
		id := UUID()
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("UUID() = %q", id)
		}
		seen[id] = true
	}
}

func TestHex_HasTwoDigitsForEachByte(t *testing.T) {
	t.Parallel()
	if a, b := Hex(12), Hex(12); len(a) != 24 || a == b {
		t.Errorf("Hex(12) = %q, then %q", a, b)
	}
}
