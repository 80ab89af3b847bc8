package auth_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/auth/authtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wantCode fails unless the checker answers so; "" lets in.
func wantCode(t *testing.T, k *authtest.Keys, key string, code llmq.Code) auth.Caller {
	t.Helper()
	c, err := k.Checker.Check(t.Context(), "Bearer "+key)
	if code == "" && err != nil || code != "" && (!errors.Is(err, code) || c != (auth.Caller{})) {
		t.Errorf("after %v: %v, want %q", time.Now().Format(time.TimeOnly), err, code)
	}
	return c
}

// A15: a key opens the door for its tenant, whatever the scheme's case.
func TestCheck_KnowsTheCaller(t *testing.T) {
	t.Parallel()
	k := authtest.New()
	w := authtest.All("team-a", "m")
	w.CallsPerMinute = 5
	i := k.Issue(w)
	for _, scheme := range []string{"Bearer", "bearer", "BEARER"} {
		c, err := k.Checker.Check(t.Context(), scheme+" "+i.Key)
		if err != nil || c.Tenant() != "team-a" || c.KeyID() != i.Record.KID || c.CallsPerMinute() != 5 || !c.Models().Has(llmq.Target{Model: "m"}) {
			t.Errorf("%s: %+v, %v", scheme, c, err)
		}
	}
}

// KT1, SEC01: each character of a key counts; what differs in one is refused without any I/O, in one sentence that shows
// nothing of it.
func TestCheck_OneCharacterChangedIsRefusedWithoutIO(t *testing.T) {
	t.Parallel()
	k := authtest.New()
	key := k.Issue(authtest.All("team-a", "m")).Key
	before := k.Objects.Calls()
	_, missing := k.Checker.Check(t.Context(), "")
	n := 0
	for i := range key {
		for _, c := range []byte("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_- ") {
			if key[i] == c {
				continue
			}
			changed := key[:i] + string(c) + key[i+1:]
			caller, err := k.Checker.Check(t.Context(), "Bearer "+changed)
			if !errors.Is(err, llmq.CodeInvalidKey) || err.Error() != missing.Error() || caller != (auth.Caller{}) {
				t.Fatalf("position %d: %v", i, err)
			}
			n++
		}
	}
	if got := k.Objects.Calls(); got != before || n < 4000 {
		t.Errorf("%d reads for %d keys that were none", got-before, n)
	}
}

// SEC02: no I/O, no echo; who sent a provider's key is told to rotate it.
func TestCheck_WhatIsNoKeyIsRefusedWithoutIO(t *testing.T) {
	t.Parallel()
	k := authtest.New()
	key := k.Issue(authtest.All("team-a", "m")).Key
	before := k.Objects.Calls()
	for value, hint := range map[string]bool{
		"": false, "Bearer": false, "Bearer ": false, "Basic canary7f3a": false, "Bearer ' OR 1=1--": false, "Basic " + key: false, key: false,
		"Bearer  " + key: false, "Bearer " + key + " ": false, "Bearer\t" + key: false, "Bearer " + key + ", Bearer " + key: false,
		"Bearer " + strings.Repeat("x", 8<<10): false, "Bearer " + key + strings.Repeat(" ", 600): false, "\x00": false,
		"Bearer " + strings.ToUpper(key): false, "Bearer " + strings.Replace(key, "llmq_test", "llmq_prod", 1): false,
		"Bearer sk-proj-canary7f3a": true, "Bearer ABSKcanary7f3a": true, "bearer bedrock-api-key-canary7f3a": true, "sk-canary7f3a": true,
		"AWS4-HMAC-SHA256 Credential=canary7f3a/20260101/eu-central-1/bedrock/aws4_request, SignedHeaders=host, Signature=00": false, // of which no secret follows
	} {
		_, err := k.Checker.Check(t.Context(), value)
		if !errors.Is(err, llmq.CodeInvalidKey) || strings.Contains(err.Error(), "rotate") != hint || strings.Contains(err.Error(), "canary7f3a") {
			t.Errorf("%.30q: %v", value, err)
		}
	}
	if got := k.Objects.Calls(); got != before {
		t.Errorf("%d reads", got-before)
	}
}

// KT2: a key whose tag is right and whose secret is not is told no more than a stranger; so is one without a record.
func TestCheck_KnownAndUnknownIdsAreOneAnswer(t *testing.T) {
	t.Parallel()
	k, other := authtest.New(), authtest.New() // of one pepper, with records of their own
	_, missing := k.Checker.Check(t.Context(), "")
	stranger := other.Issue(authtest.All("team-a", "m"))
	_, err := k.Checker.Check(t.Context(), "Bearer "+stranger.Key)
	if err == nil || err.Error() != missing.Error() {
		t.Errorf("without a record: %v", err)
	}
	rotated, rotateErr := other.Registry.Rotate(t.Context(), stranger.Record.KID, 0, 0)
	if rotateErr != nil {
		t.Fatal(rotateErr)
	}
	_, err = other.Checker.Check(t.Context(), "Bearer "+stranger.Key)
	if err == nil || err.Error() != missing.Error() {
		t.Errorf("another secret: %v", err)
	}
	wantCode(t, other, rotated.Key, "")
}

// KT3, SEC03: a warm process refuses a revoked key within 30 s, and its holder is told so.
func TestCheck_RevokedIsRefusedWithin30Seconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := authtest.New()
		i := k.Issue(authtest.All("team-a", "m"))
		wantCode(t, k, i.Key, "")
		time.Sleep(time.Second)
		if _, err := k.Registry.Revoke(t.Context(), "ops", i.Record.KID); err != nil {
			t.Fatal(err)
		}
		reads := k.Objects.Calls()
		wantCode(t, k, i.Key, "")
		if k.Objects.Calls() != reads {
			t.Error("a fresh record was read again")
		}
		time.Sleep(29 * time.Second) // 30 s after the read, 29 after the revocation
		wantCode(t, k, i.Key, llmq.CodeKeyRevoked)
		if _, err := k.Records.Allowed(t.Context(), i.Record.KID, "team-a"); !errors.Is(err, llmq.CodeKeyRevoked) {
			t.Errorf("a queued call: %v", err)
		}
	})
}

// KT3: that there is no such key is believed for 5 s.
func TestCheck_MissIsBelievedFor5Seconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, other := authtest.New(), authtest.New()
		i := other.Issue(authtest.All("team-a", "m"))
		wantCode(t, k, i.Key, llmq.CodeInvalidKey)
		body, _, err := other.Objects.Get(t.Context(), "keys/"+i.Record.KID+".json")
		if err != nil {
			t.Fatal(err)
		}
		k.Objects.Plant("keys/"+i.Record.KID+".json", body)
		time.Sleep(4 * time.Second)
		wantCode(t, k, i.Key, llmq.CodeInvalidKey)
		time.Sleep(time.Second)
		wantCode(t, k, i.Key, "")
	})
}

// KT3, SEC03: while the bucket can't be read known keys hold for 5 min, and others are not served; nobody asks it more
// than once in 5 s. A record that is gone, or is no record, is the same: none is ever deleted.
func TestCheck_BucketDown(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]func(*authtest.Objects, string){
		"down":    func(o *authtest.Objects, _ string) { o.Fail(errors.New("S3 is down")) },
		"gone":    func(o *authtest.Objects, key string) { o.Plant(key, nil) },
		"garbage": func(o *authtest.Objects, key string) { o.Plant(key, []byte(`{"v":1`)) },
		"newer":   func(o *authtest.Objects, key string) { o.Plant(key, []byte(`{"v":2}`)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := authtest.New()
				i := k.Issue(authtest.All("team-a", "m"))
				wantCode(t, k, i.Key, "")
				reads := k.Objects.Calls()
				down(k.Objects, "keys/"+i.Record.KID+".json")
				for range 299 {
					time.Sleep(time.Second)
					wantCode(t, k, i.Key, "")
				}
				if n := k.Objects.Calls() - reads; n > 55 {
					t.Errorf("%d reads of a bucket that is down", n)
				}
				time.Sleep(time.Second)
				wantCode(t, k, i.Key, llmq.CodeQueueUnavailable)
				if _, err := k.Records.Allowed(t.Context(), i.Record.KID, "team-a"); !errors.Is(err, llmq.CodeQueueUnavailable) {
					t.Errorf("a queued call: %v", err)
				}
			})
		})
	}
}

// KT3: who was never known is not served while the bucket is down, and is once it is back.
func TestCheck_UnknownKeyWaitsForTheBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := authtest.New()
		i := k.Issue(authtest.All("team-a", "m"))
		k.Objects.Fail(errors.New("S3 is down"))
		wantCode(t, k, i.Key, llmq.CodeQueueUnavailable)
		k.Objects.Fail(nil)
		time.Sleep(5 * time.Second)
		wantCode(t, k, i.Key, "")
	})
}

// slow is a bucket that takes a second, and counts its readers.
type slow struct {
	auth.Objects
	reads atomic.Int32
}

func (s *slow) Get(ctx context.Context, key string) ([]byte, string, error) {
	s.reads.Add(1)
	time.Sleep(time.Second) // in a bubble
	return s.Objects.Get(ctx, key)
}

// Many callers at once cause one read; one who goes away takes nothing from the others.
func TestLook_ManyAtOnceReadOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := authtest.New()
		i := k.Issue(authtest.All("team-a", "m"))
		s := &slow{Objects: k.Objects}
		records := auth.NewRecords(s)
		first, leave := context.WithCancel(t.Context())
		errs := make(chan error, 20)
		for n := range 20 {
			ctx := t.Context()
			if n == 0 {
				ctx = first
			}
			go func() { _, err := records.Look(ctx, i.Record.KID); errs <- err }()
			synctest.Wait()
		}
		leave()
		for range 20 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if n := s.reads.Load(); n != 1 {
			t.Errorf("%d reads", n)
		}
	})
}

// KT5: nobody may do nothing.
func TestCaller_TheZeroValueMayDoNothing(t *testing.T) {
	t.Parallel()
	var c auth.Caller
	target := llmq.Target{Model: "m", Name: "t"}
	if c.May("") == nil || c.May(auth.ScopeCall) == nil || c.MayUse(llmq.LaneRT, llmq.ModelRef{Alias: "m"}, []llmq.Target{target}) == nil ||
		c.Models().Has(target) || c.Tenant() != "" || c.KeyID() != "" {
		t.Errorf("%+v may do something", c)
	}
}

// MS2, SEC16: a key of another tenant is no key of this request's.
func TestAllowed_HoldsTheTenantToTheKeys(t *testing.T) {
	t.Parallel()
	k := authtest.New()
	i := k.Issue(authtest.All("team-a", "m"))
	if _, err := k.Records.Allowed(t.Context(), i.Record.KID, "team-b"); !errors.Is(err, llmq.CodeBadEnvelope) {
		t.Errorf("another tenant's: %v", err)
	}
	before := k.Objects.Calls()
	for _, kid := range []string{"", "k", "../../x", "0123456789a", "ILOU000000"} {
		if _, err := k.Records.Allowed(t.Context(), kid, "team-a"); !errors.Is(err, llmq.CodeQueueUnavailable) {
			t.Errorf("%q: %v", kid, err)
		}
	}
	if n := k.Objects.Calls() - before; n != 0 {
		t.Errorf("%d reads of names that no key has", n)
	}
}

// Nothing that prints a key shows it.
func TestIssued_PrintsNoSecret(t *testing.T) {
	t.Parallel()
	i := authtest.New().Issue(authtest.All("team-a", "m"))
	secret := strings.Split(i.Key, "_")[3]
	for _, text := range []string{fmt.Sprint(i), fmt.Sprintf("%+v", i), fmt.Sprintf("%#v", i), fmt.Sprintf("%v", *i.Record)} {
		if strings.Contains(text, secret) {
			t.Errorf("shown: %s", text)
		}
	}
}
