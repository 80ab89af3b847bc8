// Jobs is a worker for tests. Each run of a function is reported before it begins, and its end after, to the URL that the payload
// names, so that a test sees what ran and when.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/llm-queue/llmq/worker"
)

func main() {
	worker.Main(worker.Job("digest", digest), worker.Job("hang", hang), worker.Job("fail", fail), worker.Job("refuse", refuse), worker.Job("ask", ask))
}

// digest tells what it got: the payload's length and hash.
func digest(ctx context.Context, r worker.Run) ([]byte, error) {
	if err := report(ctx, r, "digest"); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(r.Payload)
	return json.Marshal(map[string]any{"bytes": len(r.Payload), "sha256": hex.EncodeToString(sum[:]), "attempt": r.Attempt, "id": r.ID})
}

// hang goes on until it is stopped.
func hang(ctx context.Context, r worker.Run) ([]byte, error) {
	if err := report(ctx, r, "hang"); err != nil {
		return nil, err
	}
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return nil, errors.Join(ctx.Err(), report(ending, r, "stopped"))
}

// fail fails each time.
func fail(ctx context.Context, r worker.Run) ([]byte, error) {
	return nil, errors.Join(report(ctx, r, "fail"), worker.After(100*time.Millisecond, errors.New("no luck")))
}

// refuse fails for good.
func refuse(ctx context.Context, r worker.Run) ([]byte, error) {
	return nil, errors.Join(report(ctx, r, "refuse"), worker.Fatal(errors.New("never")))
}

// ask has a model answer over HTTP, as any client does. The call's id follows from the job's, so that a run again takes it up.
func ask(ctx context.Context, r worker.Run) ([]byte, error) {
	var to struct{ URL, Key, Model string }
	if err := json.Unmarshal(r.Payload, &to); err != nil {
		return nil, worker.Fatal(fmt.Errorf("read the payload: %w", err))
	}
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"asked by a job"}]}`, to.Model)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, worker.Fatal(err)
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + to.Key, "Content-Type": "application/json", "Idempotency-Key": r.ID + "-ask"} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // it is read to its end
	return io.ReadAll(resp.Body)
}

// report tells the payload's URL of a run.
func report(ctx context.Context, r worker.Run, what string) error {
	var ask struct{ Report string }
	if err := json.Unmarshal(r.Payload, &ask); err != nil {
		return worker.Fatal(fmt.Errorf("read the payload: %w", err))
	}
	body, err := json.Marshal(map[string]any{"id": r.ID, "what": what, "attempt": r.Attempt, "pid": os.Getpid()})
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, ask.Report, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return resp.Body.Close()
}
