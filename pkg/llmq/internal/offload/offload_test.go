package offload

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// setup is a bucket on an S3 server of this process, and a count of its requests.
func setup(t *testing.T) (*Bucket, *atomic.Int64) {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("data"); err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	h := gofakes3.New(backend).Server()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n.Add(1); h.ServeHTTP(w, r) }))
	t.Cleanup(srv.Close)
	api := s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(srv.URL), UsePathStyle: true, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""),
	})
	return New(api, "data", ""), &n
}

const key = "off/abcdefghijklmnop/request"

func TestBucket_GivesBackWhatItTook(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	body := []byte(`{"x":"` + strings.Repeat("日", 100_000) + `"}`)
	ref, err := b.Put(t.Context(), key, body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Get(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(body) || ref.Bytes != int64(len(body)) {
		t.Errorf("got %d bytes, ref says %d, want %d", len(got), ref.Bytes, len(body))
	}
}

// SEC19, MS4: a pointer is input from outside. One of another form causes no call at all.
func TestBucket_BadReferenceCausesNoCall(t *testing.T) {
	t.Parallel()
	b, n := setup(t)
	hash := strings.Repeat("0", 64)
	for _, ref := range []llmq.Ref{
		{},
		{Key: "../../etc/passwd", SHA256: hash, Bytes: 1},
		{Key: "off/abcdefghijklmnop/../x", SHA256: hash, Bytes: 1},
		{Key: "keys/abc.json", SHA256: hash, Bytes: 1},
		{Key: "off/ABC/x", SHA256: hash, Bytes: 1},
		{Key: key, SHA256: "short", Bytes: 1},
		{Key: key, SHA256: hash, Bytes: 0},
		{Key: key, SHA256: hash, Bytes: -1},
		{Key: key, SHA256: hash, Bytes: MaxBytes + 1},
		{Key: key + "\n", SHA256: hash, Bytes: 1},
		{Key: "s3://other/" + key, SHA256: hash, Bytes: 1},
		{Key: "in/billing/..", SHA256: hash, Bytes: 1},
		{Key: "in/billing/a..b", SHA256: hash, Bytes: 1},
		{Key: "in/billing/a/b", SHA256: hash, Bytes: 1},
		{Key: "in/Billing/a", SHA256: hash, Bytes: 1},
		{Key: "in//a", SHA256: hash, Bytes: 1},
	} {
		if _, err := b.Get(t.Context(), ref); !errors.Is(err, llmq.CodeBadEnvelope) {
			t.Errorf("%+v: %v", ref, err)
		}
	}
	if n.Load() != 0 {
		t.Errorf("%d requests were made", n.Load())
	}
}

// SEC19: what is stored must be what was announced.
func TestBucket_SwappedBodyIsRefused(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	ref, err := b.Put(t.Context(), key, []byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{`{"a":2}`, `{"a":1,"b":2}`, `{}`} {
		if _, err := b.Put(t.Context(), key, []byte(body)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Get(t.Context(), ref); !errors.Is(err, llmq.CodeBadEnvelope) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestBucket_MissingBodyIsNotAnOutage(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	ref := llmq.Ref{Key: key, SHA256: strings.Repeat("0", 64), Bytes: 3}
	if _, err := b.Get(t.Context(), ref); !errors.Is(err, llmq.CodeBadEnvelope) {
		t.Errorf("error = %v", err)
	}
}

func TestBucket_OutageIsUnavailable(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ref := llmq.Ref{Key: key, SHA256: strings.Repeat("0", 64), Bytes: 3}
	if _, err := b.Get(ctx, ref); !errors.Is(err, llmq.CodeQueueUnavailable) {
		t.Errorf("get: %v", err)
	}
	if _, err := b.Put(ctx, key, []byte("{}")); !errors.Is(err, llmq.CodeQueueUnavailable) {
		t.Errorf("put: %v", err)
	}
}

func TestBucket_RefusesToStoreUnderABadKeyOrTooMuch(t *testing.T) {
	t.Parallel()
	b, n := setup(t)
	if _, err := b.Put(t.Context(), "../x", []byte("{}")); err == nil {
		t.Error("bad key was taken")
	}
	if _, err := b.Put(t.Context(), key, make([]byte, MaxBytes+1)); err == nil {
		t.Error("too large a body was taken")
	}
	if n.Load() != 0 {
		t.Errorf("%d requests were made", n.Load())
	}
}

// DS37: what is kept without a reference can be looked for and removed; nothing there is no outage.
func TestBucket_FetchesAndDeletesByKey(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	const spill = "spill/abcdefghijklmnop/request"
	if _, there, err := b.Fetch(t.Context(), spill); there || err != nil {
		t.Errorf("of nothing: %v, %v", there, err)
	}
	if _, err := b.Put(t.Context(), spill, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if got, there, err := b.Fetch(t.Context(), spill); string(got) != "{}" || !there || err != nil {
		t.Errorf("got %q, %v, %v", got, there, err)
	}
	for range 2 {
		if err := b.Delete(t.Context(), spill); err != nil {
			t.Error(err)
		}
	}
	if _, there, err := b.Fetch(t.Context(), spill); there || err != nil {
		t.Errorf("after the delete: %v, %v", there, err)
	}
	if _, _, err := b.Fetch(t.Context(), "../x"); err == nil {
		t.Error("a bad key was fetched")
	}
}

// SEC19: an object that has grown to 21 MiB is read no further than what was announced.
func TestBucket_LargerObjectIsNotReadToItsEnd(t *testing.T) {
	t.Parallel()
	var written atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for chunk := make([]byte, 64<<10); written.Load() < 21<<20; {
			n, err := w.Write(chunk)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	b := New(s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(srv.URL), UsePathStyle: true, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""),
	}), "data", "")
	_, err := b.Get(t.Context(), llmq.Ref{Key: "in/billing/scan.json", SHA256: strings.Repeat("0", 64), Bytes: 100})
	srv.Close() // the handler has ended
	if !errors.Is(err, llmq.CodeBadEnvelope) {
		t.Errorf("error = %v", err)
	}
	if n := written.Load(); n >= 21<<20 {
		t.Errorf("all of its %d bytes were taken", n)
	}
}

// MS4: every request names the account whose the bucket must be.
func TestBucket_NamesItsOwner(t *testing.T) {
	t.Parallel()
	var missing atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Amz-Expected-Bucket-Owner") != "111122223333" {
			missing.Add(1)
		}
		w.WriteHeader(http.StatusForbidden) // as S3 answers about another's bucket
	}))
	defer srv.Close()
	b := New(s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(srv.URL), UsePathStyle: true, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""),
	}), "data", "111122223333")
	if _, err := b.Put(t.Context(), key, []byte(`{}`)); err == nil {
		t.Error("a bucket of somebody else took it")
	}
	if _, err := b.Get(t.Context(), llmq.Ref{Key: key, SHA256: strings.Repeat("0", 64), Bytes: 3}); err == nil {
		t.Error("a bucket of somebody else gave it")
	}
	if _, found, _ := b.Fetch(t.Context(), key); found { // refused is missing, see isMissing
		t.Error("a bucket of somebody else has it")
	}
	if err := b.Delete(t.Context(), key); err == nil {
		t.Error("a bucket of somebody else lost it")
	}
	if n := missing.Load(); n != 0 {
		t.Errorf("%d requests named no owner", n)
	}
}
