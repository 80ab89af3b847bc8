package rig_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
)

// issued is what the admin API answers to a new key.
type issued struct {
	Key    string
	Record struct{ KID, State string }
}

func issue(t *testing.T, r *rig.Rig, rights map[string]any) issued {
	t.Helper()
	var made issued
	if status := operate(t, r, "POST", "/keys/create", rights, &made); status != 200 || made.Key == "" || made.Record.State != "active" {
		t.Fatalf("create: %d %+v", status, made.Record)
	}
	return made
}

// askWith makes a chat call with a key.
func askWith(t *testing.T, r *rig.Rig, key, model, lane string) (status int, code string, h http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t, 40*time.Second), http.MethodPost, r.URL+"/v1/chat/completions",
		strings.NewReader(`{"model":"`+model+`","messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-LLMQ-Lane", lane)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // only the header matters
	return resp.StatusCode, resp.Header.Get("X-LLMQ-Error-Code"), resp.Header
}

// KT7: through the real admin function, each change leaves an object of its own in the state bucket, the making of the first key among them.
func TestAudit_EachVerbLeavesAnObject(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	var done map[string]any
	if status := operate(t, r, "POST", "/settings/set", map[string]any{"model": rig.ModelChat, "set": map[string]any{"max_concurrency": 7}}, &done); status != 200 {
		t.Fatalf("set: %d %v", status, done)
	}
	if status := operate(t, r, "POST", "/queues/pause", map[string]any{"model": rig.ModelChat, "lane": "bg"}, &done); status != 200 {
		t.Fatalf("pause: %d %v", status, done)
	}
	if status := operate(t, r, "POST", "/queues/redrive", map[string]any{"model": rig.ModelChat, "lane": "bg", "dry_run": true}, &done); status != 200 {
		t.Fatalf("dry run: %d %v", status, done)
	}
	store := s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: &r.Config.Storage.Endpoint, UsePathStyle: true, Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""),
	})
	ctx := within(t, time.Minute)
	list, err := store.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &r.Config.Storage.StateBucket, Prefix: aws.String("audit/")})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range list.Contents {
		out, err := store.GetObject(ctx, &s3.GetObjectInput{Bucket: &r.Config.Storage.StateBucket, Key: o.Key})
		if err != nil {
			t.Fatal(err)
		}
		var record struct{ By, Verb string }
		if err := errors.Join(json.NewDecoder(out.Body).Decode(&record), out.Body.Close()); err != nil || record.By != "local admin key" {
			t.Errorf("%s: %+v (%v)", *o.Key, record, err)
		}
		got = append(got, record.Verb)
	}
	if want := []string{"keys create", "settings set", "pause"}; !slices.Equal(got, want) {
		t.Errorf("recorded: %q, want %q", got, want)
	}
}

// A15, KT3, KT4, SEC03: through the real functions. A key is created by the admin API, calls what it lists and nothing else, is
// rotated, and is refused within 30 s of its revocation, with what it left in the queue ended uncalled.
func TestKeys_CreateCallRotateRevoke(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	key := issue(t, r, map[string]any{"tenant": "acme", "scopes": []string{"call"}, "models": []string{rig.ModelChat}, "lanes": []string{"rt", "bg"}})
	for _, tc := range []struct {
		key, model, lane string
		status           int
		code             string
	}{
		{key.Key, rig.ModelChat, "rt", 200, ""},
		{key.Key, rig.ModelEmbed, "rt", 403, "forbidden"},
		{key.Key, rig.ModelChat, "bulk", 403, "forbidden"},
		{key.Key + "x", rig.ModelChat, "rt", 401, "invalid_api_key"},
		{r.AdminKey, rig.ModelChat, "rt", 401, "invalid_api_key"},
	} {
		if status, code, _ := askWith(t, r, tc.key, tc.model, tc.lane); status != tc.status || code != tc.code {
			t.Errorf("%s on %s: %d %s, want %d %s", tc.model, tc.lane, status, code, tc.status, tc.code)
		}
	}
	var rotated issued
	if status := operate(t, r, "POST", "/keys/rotate", map[string]any{"kid": key.Record.KID}, &rotated); status != 200 || rotated.Record.KID != key.Record.KID {
		t.Fatalf("rotate: %d %+v", status, rotated.Record)
	}
	if status, code, _ := askWith(t, r, key.Key, rig.ModelChat, "rt"); status != 200 {
		t.Errorf("the old secret in the overlap: %d %s", status, code)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C { // a warm door knows the new one 5 s after it last looked
		status, code, _ := askWith(t, r, rotated.Key, rig.ModelChat, "rt")
		if status == 200 {
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("the new secret: %d %s", status, code)
		}
	}

	// A call waits in a paused lane while its key is revoked.
	lane := map[string]any{"model": rig.ModelChat, "lane": "bg"}
	var flipped struct{ State string }
	if status := operate(t, r, "POST", "/queues/pause", lane, &flipped); status != 200 {
		t.Fatalf("pause: %d", status)
	}
	settled(within(t, 40*time.Second), t, r, llmq.LaneBG, "llm-"+rig.ModelChat)
	called := len(r.Fake.Calls())
	queued := make(chan string, 1)
	go func() {
		_, code, _ := askWith(t, r, key.Key, rig.ModelChat, "bg")
		queued <- code
	}()
	for waiting := 0; waiting == 0; {
		var listed struct {
			Queues []struct {
				Queue   string
				Waiting int
			}
		}
		operate(t, r, "GET", "/queues", nil, &listed)
		for _, q := range listed.Queues {
			if q.Queue == "llm-"+rig.ModelChat {
				waiting = q.Waiting
			}
		}
		<-tick.C
	}
	var view struct {
		State, RevokedBy string
	}
	began := time.Now()
	if status := operate(t, r, "POST", "/keys/revoke", map[string]any{"kid": key.Record.KID}, &view); status != 200 || view.State != "revoked" {
		t.Fatalf("revoke: %d %+v", status, view)
	}
	if status := operate(t, r, "POST", "/queues/resume", lane, &flipped); status != 200 {
		t.Fatalf("resume: %d", status)
	}
	if code := <-queued; code != "key_revoked" {
		t.Errorf("the queued call ended as %q", code)
	}
	for {
		status, code, _ := askWith(t, r, key.Key, rig.ModelChat, "rt")
		if status == 401 && code == "key_revoked" {
			break
		}
		if status != 200 || time.Since(began) > 31*time.Second {
			t.Fatalf("%v after the revocation: %d %s", time.Since(began), status, code)
		}
		called++
		<-tick.C
	}
	t.Logf("refused %v after the revocation", time.Since(began).Round(time.Millisecond))
	if n := len(r.Fake.Calls()); n != called {
		t.Errorf("%d calls reached the provider, want %d: the queued one is not to", n, called)
	}
	var list struct{ Keys []struct{ KID, State string } }
	if status := operate(t, r, "GET", "/keys", nil, &list); status != 200 || len(list.Keys) != 2 {
		t.Errorf("list: %d %+v", status, list)
	}
}

// A15: a key's rate holds over four door processes that calls keep busy at once.
func TestKeys_RateHoldsOverFourDoors(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	if err := r.Fake.SetLatency(server.Latency{Mean: 500 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	const rate = 20
	key := issue(t, r, map[string]any{"tenant": "acme", "scopes": []string{"call"}, "models": []string{rig.ModelChat}, "lanes": []string{"rt"}, "calls_per_minute": rate})
	var in, out atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 6 {
				switch status, code, h := askWith(t, r, key.Key, rig.ModelChat, "rt"); {
				case status == 200 && h.Get("X-Ratelimit-Limit-Requests") == "20":
					in.Add(1)
				case status == 429 && code == "rate_limited" && h.Get("Retry-After") != "" && h.Get("X-Ratelimit-Remaining-Requests") == "0":
					out.Add(1)
				default:
					t.Errorf("answer %d %s %v", status, code, h)
				}
			}
		})
	}
	wg.Wait()
	if in.Load() != rate || out.Load() != 48-rate {
		t.Errorf("%d calls were let in and %d refused, want %d and %d", in.Load(), out.Load(), rate, 48-rate)
	}
	doors := 0
	for _, i := range r.Lambda.Instances(cloud.FunctionEnqueue) {
		if i.PID != 0 {
			doors++
		}
	}
	if doors < 4 {
		t.Errorf("%d doors served, want at least 4", doors)
	}
}
