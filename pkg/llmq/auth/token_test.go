package auth

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const pepper = "0123456789abcdef0123456789abcdef"

// The form of a key, its digest and its tag are what stored records and handed-out keys rest on.
func TestToken_FormIsGolden(t *testing.T) {
	t.Parallel()
	k := token{env: "prod-eu", kid: "0123456789", secret: strings.Repeat("aZ09", 10) + "aZ0"}
	k.tag = k.seal([]byte(pepper))
	if got, want := k.spell(), "llmq_prod_eu_0123456789_aZ09aZ09aZ09aZ09aZ09aZ09aZ09aZ09aZ09aZ09aZ0_S1X2Xh"; got != want {
		t.Errorf("spelt %s, want %s", got, want)
	}
	if got, want := inBase62(k.digest([]byte(pepper))), "wfg5MaHpnk7PWm70m9mEOun7mC7jn3ymAHIbeU7wPwK"; got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

// KT1: a key is of characters that every SDK takes, and is read back as it was written, in its environment alone.
func TestToken_IsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		env := rapid.StringMatching(`[a-z0-9-]{1,16}`).Draw(t, "env")
		k := newToken(env, newKID(), []byte(pepper))
		text := k.spell()
		if !of(base62+"_", text) || len(text) > 83 {
			t.Fatalf("spelt %q", text)
		}
		got, ok := parseToken(text, env)
		if !ok || got != k || !got.sealed([]byte(pepper)) || got.sealed([]byte(pepper+"x")) {
			t.Fatalf("read back %+v, %v", got, ok)
		}
		if other := rapid.StringMatching(`[a-z0-9-]{1,16}`).Draw(t, "other"); other != env {
			if _, ok := parseToken(text, other); ok {
				t.Fatalf("%s is a key of %s", text, other)
			}
		}
	})
}

// KT1, SEC01: whatever is sent, no panic; what is taken is spelt the same again, and its id may name an object.
func FuzzParseToken(f *testing.F) {
	good := newToken("prod-eu", "0123456789", []byte(pepper)).spell()
	for _, s := range []string{good, good + "x", good[1:], "", "llmq_", "llmq_prod_eu_", strings.Repeat("_", len(good)), strings.ReplaceAll(good, "_", "/"), "llmq_prod-eu_" + good[13:], good[:70] + "\x00" + good[71:]} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, ok := parseToken(s, "prod-eu")
		if !ok {
			if k != (token{}) {
				t.Fatalf("%q gave %+v", s, k)
			}
			return
		}
		if k.spell() != s || !legalKID(k.kid) || strings.ContainsAny(objectOf(k.kid)[len(objectPrefix):], "/ ") {
			t.Fatalf("%q became %q", s, k.spell())
		}
	})
}

// A record is whole and its own, or none: half of one must open nothing.
func FuzzReadRecord(f *testing.F) {
	for _, s := range []string{
		`{"v":1,"kid":"0123456789","tenant":"t","scopes":["call"],"models":["m"],"lanes":["rt"],"created_at":"2026-01-01T00:00:00Z","created_by":"x","secrets":[{"digest":"` + strings.Repeat("0a", 32) + `","created_at":"2026-01-01T00:00:00Z","expires_at":"2026-01-01T00:00:00Z"}]}`,
		`{}`, `null`, `[]`, `{"v":1,"kid":"0123456789"}`, `{"v":1,"kid":"0123456789","tenant":"t","secrets":[{}]}`, `{"v":1,"kid":"0123456788","tenant":"t"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := readRecord("0123456789", body)
		if (r == nil) != (err != nil) {
			t.Fatalf("%s: %+v, %v", body, r, err)
		}
		if err == nil && (r.KID != "0123456789" || r.Tenant == "" || len(r.Secrets) == 0 || r.ExpiresAt().IsZero()) {
			t.Fatalf("%s: %+v", body, r)
		}
	})
}
