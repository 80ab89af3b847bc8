package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"sync/atomic"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/client/clienttest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// open is what a program does by wiring.Open(ctx, os.Environ(), "team-a", slog.Default()): here queue, worker and provider
// are of this process.
func open(p clienttest.Provider) *clienttest.Program {
	program, err := clienttest.Start(p)
	if err != nil {
		log.Fatal(err)
	}
	return program
}

func ok(body string) (*provider.Response, error) {
	return &provider.Response{Status: 200, ContentType: "application/json", Body: []byte(body)}, nil
}

// A1: the reply is the provider's, byte for byte, and its meta tells how the call was served.
func ExampleClient_Chat() {
	llm := open(func(context.Context, provider.Request, provider.Emit) (*provider.Response, error) {
		return ok(`{"choices":[{"message":{"role":"assistant","content":"Paris"}}]}`)
	})
	defer llm.Close()

	body := []byte(`{"model":"chat-a","messages":[{"role":"user","content":"The capital of France?"}]}`)
	reply, err := llm.Chat(context.Background(), body, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(reply.Body))
	m := reply.Meta
	fmt.Println(m.Model, m.Target, m.Provider, m.ModelID, m.Lane, "attempts:", m.Attempts, "fallback:", m.Fallback)
	fmt.Println("queued and served in time:", m.QueueWait < time.Minute && m.Provided < time.Minute)
	// Output:
	// {"choices":[{"message":{"role":"assistant","content":"Paris"}}]}
	// chat-a main fake chat-a-main rt attempts: 1 fallback: false
	// queued and served in time: true
}

// A1: embeddings are a call like any other.
func ExampleClient_Embed() {
	llm := open(func(context.Context, provider.Request, provider.Emit) (*provider.Response, error) {
		return ok(`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.25,-1]}]}`)
	})
	defer llm.Close()

	reply, err := llm.Embed(context.Background(), []byte(`{"model":"emb-a","input":"hello"}`), client.Options{Lane: llmq.LaneBG})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(reply.Body), reply.Meta.Lane)
	// Output:
	// {"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.25,-1]}]} bg
}

// A1: in Bedrock's dialect the model is beside the body, not in it.
func ExampleClient_Converse() {
	llm := open(func(context.Context, provider.Request, provider.Emit) (*provider.Response, error) {
		return ok(`{"output":{"message":{"role":"assistant","content":[{"text":"Hello!"}]}},"stopReason":"end_turn"}`)
	})
	defer llm.Close()

	reply, err := llm.Converse(context.Background(), "conv-a", []byte(`{"messages":[{"role":"user","content":[{"text":"Hi"}]}]}`), client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(reply.Body))
	// Output:
	// {"output":{"message":{"role":"assistant","content":[{"text":"Hello!"}]}},"stopReason":"end_turn"}
}

// A11: a stream comes in the events of its wire; io.EOF says that it is whole.
func ExampleClient_ChatStream() {
	llm := open(func(_ context.Context, _ provider.Request, emit provider.Emit) (*provider.Response, error) {
		for _, word := range []string{"Par", "is"} {
			emit([]byte(`data: {"choices":[{"delta":{"content":"`+word+`"}}]}`+"\n\n"), true)
		}
		return &provider.Response{Status: 200, ContentType: "text/event-stream"}, nil
	})
	defer llm.Close()

	ctx := context.Background()
	body := []byte(`{"model":"chat-a","stream":true,"messages":[{"role":"user","content":"The capital of France?"}]}`)
	stream, err := llm.ChatStream(ctx, body, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close()
	var events []byte
	for {
		piece, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		events = append(events, piece...) // whole events, one or more
	}
	fmt.Print(string(events))
	// Output:
	// data: {"choices":[{"delta":{"content":"Par"}}]}
	//
	// data: {"choices":[{"delta":{"content":"is"}}]}
}

// A2, A10: what a call may say of itself. The same id never runs twice: a repeat gets the stored reply.
func ExampleOptions() {
	var calls atomic.Int32
	llm := open(func(context.Context, provider.Request, provider.Emit) (*provider.Response, error) {
		calls.Add(1)
		return ok(`{"choices":[]}`)
	})
	defer llm.Close()

	ctx := llmq.WithUser(context.Background(), "user-17") // for all calls under it; a call's own goes before it
	ctx = llmq.WithSession(ctx, "chat-4")
	o := client.Options{
		Lane:     llmq.LaneBulk,
		Timeout:  2 * time.Hour,       // or Deadline, a time
		Fallback: llmq.FallbackTarget, // no other model may answer
		ID:       "invoice-2026-0042",
	}
	body := []byte(`{"model":"chat-a","messages":[{"role":"user","content":"Read this invoice: …"}]}`)
	for range 2 {
		reply, err := llm.Chat(ctx, body, o)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(reply.Meta.RequestID, reply.Meta.Lane)
	}
	fmt.Println("the provider was called", calls.Load(), "time")
	// Output:
	// invoice-2026-0042 bulk
	// invoice-2026-0042 bulk
	// the provider was called 1 time
}

// A3: alias@target pins a target. A model that is not there is refused before anything is sent.
func ExampleClient_Chat_modelReferences() {
	llm := open(func(_ context.Context, r provider.Request, _ provider.Emit) (*provider.Response, error) {
		return ok(`{"served_by":"` + r.ModelID + `"}`)
	})
	defer llm.Close()

	for _, model := range []string{"chat-a", "chat-a@spare", "chat-a@third", "chat-b", "conv-a"} {
		reply, err := llm.Chat(context.Background(), []byte(`{"model":"`+model+`","messages":[]}`), client.Options{})
		if err != nil {
			fmt.Println(model, "→", llmq.AsError(err).Code)
			continue
		}
		fmt.Println(model, "→", string(reply.Body))
	}
	fmt.Println("messages sent:", llm.Sent())
	// Output:
	// chat-a → {"served_by":"chat-a-main"}
	// chat-a@spare → {"served_by":"chat-a-spare"}
	// chat-a@third → model_not_found
	// chat-b → model_not_found
	// conv-a → wrong_wire
	// messages sent: 2
}

// A4: errors.Is tells the kind of an error, errors.AsType all of it, with the meta that a reply has.
func ExampleClient_Chat_errors() {
	llm := open(func(context.Context, provider.Request, provider.Emit) (*provider.Response, error) {
		return nil, &provider.Error{Class: provider.CallFatal, Code: llmq.CodeProviderRejected, Status: 400, Message: "max_tokens is too large"}
	})
	defer llm.Close()

	_, err := llm.Chat(context.Background(), []byte(`{"model":"chat-a","max_tokens":1000000,"messages":[]}`), client.Options{})
	switch {
	case errors.Is(err, llmq.CodeRateLimited), errors.Is(err, llmq.CodeNoCapacity), errors.Is(err, llmq.CodeQueueUnavailable):
		fmt.Println("try again, a while later")
	case errors.Is(err, llmq.CodeTimeout), errors.Is(err, llmq.CodeCancelled):
		fmt.Println("nobody waits for it any more")
	case errors.Is(err, llmq.CodeProviderRejected):
		fmt.Println("the request is wrong")
	}
	if e, ok := errors.AsType[*llmq.Error](err); ok {
		fmt.Println(e.Code, "|", e.Message, "| again:", e.Code.Info().Retry)
		fmt.Println(e.Meta.Target, "attempts:", e.Meta.Attempts)
	}
	// Output:
	// the request is wrong
	// provider_rejected | chat-a@main: max_tokens is too large | again: false
	// main attempts: 1
}

// A5: who cancels the context cancels the call. What waits is never run, what runs is stopped.
func ExampleClient_Chat_cancel() {
	started, stopped := make(chan struct{}), make(chan struct{})
	llm := open(func(ctx context.Context, _ provider.Request, _ provider.Emit) (*provider.Response, error) {
		close(started)
		<-ctx.Done() // a provider that thinks for long
		close(stopped)
		return nil, ctx.Err()
	})
	defer llm.Close()

	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-started; cancel() }()
	_, err := llm.Chat(ctx, []byte(`{"model":"chat-a","messages":[]}`), client.Options{})
	<-stopped
	fmt.Println(errors.Is(err, llmq.CodeCancelled))
	// Output:
	// true
}
