package keystore

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/llm-queue/llmq/pkg/llmq/auth"
)

func client(t *testing.T, h http.Handler) *Bucket {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return New(s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(srv.URL), UsePathStyle: true, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""),
	}), "state")
}

func setup(t *testing.T) *Bucket {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("state"); err != nil {
		t.Fatal(err)
	}
	if err := backend.SetVersioningConfiguration("state", gofakes3.VersioningConfiguration{Status: gofakes3.VersioningEnabled}); err != nil {
		t.Fatal(err)
	}
	return client(t, gofakes3.New(backend).Server())
}

// KT3: a write is made over what its writer has read, and over nothing else.
func TestPut_OnlyOverWhatWasRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	if _, _, err := b.Get(ctx, "keys/a.json"); !errors.Is(err, auth.ErrUnknown) {
		t.Errorf("of nothing: %v", err)
	}
	if err := b.Put(ctx, "keys/a.json", []byte("1"), `"0123"`); !errors.Is(err, auth.ErrChanged) {
		t.Errorf("over a version of nothing: %v", err)
	}
	if err := b.Put(ctx, "keys/a.json", []byte("1"), ""); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(ctx, "keys/a.json", []byte("2"), ""); !errors.Is(err, auth.ErrChanged) {
		t.Errorf("a second new one: %v", err)
	}
	_, first, err := b.Get(ctx, "keys/a.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Put(ctx, "keys/a.json", []byte("2"), first); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(ctx, "keys/a.json", []byte("3"), first); !errors.Is(err, auth.ErrChanged) {
		t.Errorf("over what was overwritten: %v", err)
	}
	if body, _, err := b.Get(ctx, "keys/a.json"); err != nil || string(body) != "2" {
		t.Errorf("got %q, %v", body, err)
	}
}

// Of many writers at once one wins.
func TestPut_OneOfManyWins(t *testing.T) {
	t.Parallel()
	b := setup(t)
	errs := make(chan error, 16)
	var wg sync.WaitGroup
	for range cap(errs) {
		wg.Go(func() { errs <- b.Put(t.Context(), "keys/a.json", []byte("x"), "") })
	}
	wg.Wait()
	close(errs)
	won := 0
	for err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, auth.ErrChanged):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d writers won", won)
	}
}

func TestList_PagesInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, name := range []string{"keys/c", "keys/a", "audit/x", "keys/b"} {
		if err := b.Put(t.Context(), name, []byte("x"), ""); err != nil {
			t.Fatal(err)
		}
	}
	first, more, err := b.List(t.Context(), "keys/", "", 2)
	if diff := cmp.Diff([]string{"keys/a", "keys/b"}, first); diff != "" || !more || err != nil {
		t.Errorf("first page: %v, %v\n%s", more, err, diff)
	}
	second, more, err := b.List(t.Context(), "keys/", "keys/b", 2)
	if diff := cmp.Diff([]string{"keys/c"}, second); diff != "" || more || err != nil {
		t.Errorf("second page: %v, %v\n%s", more, err, diff)
	}
}

// S3 says of a missing object that access is denied, to roles that may not list; any other failure is one.
func TestGet_TellsMissingFromFailing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status  int
		body    string
		unknown bool
	}{
		{403, `<Error><Code>AccessDenied</Code></Error>`, true},
		{404, `<Error><Code>NoSuchKey</Code></Error>`, true},
		{404, `<Error><Code>NoSuchBucket</Code></Error>`, false},
		{403, `<Error><Code>SignatureDoesNotMatch</Code></Error>`, false},
		{503, `<Error><Code>SlowDown</Code></Error>`, false},
		{200, strings.Repeat("x", maxBytes+1), false},
	} {
		b := client(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tc.status)
			_, _ = w.Write([]byte(tc.body)) // a test server
		}))
		_, _, err := b.Get(t.Context(), "keys/a.json")
		if err == nil || errors.Is(err, auth.ErrUnknown) != tc.unknown {
			t.Errorf("%d %.40s: %v", tc.status, tc.body, err)
		}
	}
}
