package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	llmqclient "github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/wiring"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// asProducer makes this process the local cloud's producer, as AWS SDKs find out who they are. The result undoes it.
func asProducer() (restore func(), err error) {
	was := map[string]string{}
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": cloud.Producer, "AWS_SECRET_ACCESS_KEY": "local"} {
		was[name] = os.Getenv(name) //nolint:forbidigo // what the AWS SDK reads, to put it back
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	return func() {
		for name, value := range was {
			_ = os.Setenv(name, value) // it was set to a like value before
		}
	}, nil
}

// trusting is an HTTP client that takes the local authority's certificates.
func trusting(caFile string) (*http.Client, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", caFile)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}, nil
}

// programChecks are those of llmq's own client, opened from the environment as an application does it.
func programChecks(w *world, p *wiring.Program) []check {
	body := func(text string) []byte { return rig.ChatBody(rig.ModelChat, text) }
	return []check{
		{"A1: chat, embed, converse", func(ctx context.Context) (string, error) {
			var is wants
			chat, err := p.Chat(ctx, body("hello"), llmqclient.Options{})
			if err != nil {
				return "", err
			}
			is.equal("the reply repeats what it was told", strings.Contains(string(chat.Body), "[fake-chat-1] hello"), true)
			is.equal("target", chat.Meta.Target, "main")
			if _, err := p.Embed(ctx, []byte(`{"model":"emb-a","input":"x"}`), llmqclient.Options{Lane: llmq.LaneBG}); err != nil {
				return "", err
			}
			_, err = p.Converse(ctx, rig.ModelConverse, []byte(`{"messages":[{"role":"user","content":[{"text":"x"}]}]}`), llmqclient.Options{Lane: llmq.LaneBulk})
			return fmt.Sprintf("worker %.20s…", chat.Meta.Worker), errors.Join(err, is.err())
		}},
		{"A11: stream", func(ctx context.Context) (string, error) {
			stream, err := p.ChatStream(ctx, []byte(`{"model":"chat-a","stream":true,"messages":[{"role":"user","content":"one two"}]}`), llmqclient.Options{})
			if err != nil {
				return "", err
			}
			defer stream.Close()
			var all []byte
			for {
				piece, err := stream.Next(ctx)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return "", err
				}
				all = append(all, piece...)
			}
			var is wants
			is.equal("it finishes", strings.Contains(string(all), `"finish_reason":"stop"`), true)
			return fmt.Sprintf("%d bytes of events", len(all)), is.err()
		}},
		{"A2, A10: an id runs once", func(ctx context.Context) (string, error) {
			o := llmqclient.Options{ID: fmt.Sprintf("program-%d", time.Now().UnixNano()), Lane: llmq.LaneBG, Timeout: time.Minute}
			for range 2 {
				if _, err := p.Chat(llmq.WithUser(ctx, "ann"), body("once"), o); err != nil {
					return "", err
				}
			}
			var is wants
			is.equal("calls of the provider", w.Calls(), 1)
			return "", is.err()
		}},
		{"A4: an error's code and meta", func(ctx context.Context) (string, error) {
			if err := w.Replies(ctx, server.Reply{Status: http.StatusBadRequest}); err != nil {
				return "", err
			}
			_, err := p.Chat(ctx, body("x"), llmqclient.Options{})
			var is wants
			is.equal("code", llmq.AsError(err).Code, llmq.CodeProviderRejected)
			is.equal("target", llmq.AsError(err).Meta.Target, "main")
			return "", is.err()
		}},
		{"A5: a cancelled context", func(ctx context.Context) (string, error) {
			if err := w.Replies(ctx, server.Reply{Hang: true}); err != nil {
				return "", err
			}
			ctx, cancel := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() {
				_, err := p.Chat(ctx, body("slow"), llmqclient.Options{})
				ended <- err
			}()
			waiting := w.Fake.AwaitInFlight(ctx, "fake-chat-1", 1)
			began := time.Now()
			cancel()
			var is wants
			is.equal("code", llmq.AsError(<-ended).Code, llmq.CodeCancelled)
			after := time.Since(began)
			bounded, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer done()
			return fmt.Sprintf("told after %d ms, provider left after %d ms", after.Milliseconds(), time.Since(began).Milliseconds()), errors.Join(waiting, w.Fake.AwaitInFlight(bounded, "fake-chat-1", 0), is.err())
		}},
	}
}
