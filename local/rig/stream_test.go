package rig_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
)

// heard is what the official client makes of a stream.
type heard struct {
	text   string
	finish string
	usage  int64 // tokens in all, of the last chunk
	chunks int
	err    error
}

func streamChat(ctx context.Context, c openai.Client, model, text string, usage bool, opts ...option.RequestOption) heard {
	return streamChatTo(ctx, c, model, text, usage, func(heard) {}, opts...)
}

// streamChatTo tells what is heard so far at each chunk.
func streamChatTo(ctx context.Context, c openai.Client, model, text string, usage bool, tell func(heard), opts ...option.RequestOption) heard {
	p := openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
	if usage {
		p.StreamOptions.IncludeUsage = openai.Bool(true)
	}
	s := c.Chat.Completions.NewStreaming(ctx, p, append(opts, option.WithMaxRetries(0))...)
	defer s.Close()
	var h heard
	for s.Next() {
		chunk := s.Current()
		h.chunks++
		for _, choice := range chunk.Choices {
			h.text += choice.Delta.Content
			h.finish += choice.FinishReason
		}
		if len(chunk.Choices) == 0 {
			h.usage += chunk.Usage.TotalTokens
		}
		tell(h)
	}
	h.err = s.Err()
	return h
}

// A11, H22: the official client streams through the queue, and sees the usage that it asked for.
func TestStream_OpenAIClient(t *testing.T) {
	t.Parallel()
	r := theRig(t)
	words := strings.Repeat("日本 🚀 words ", 50)
	for _, usage := range []bool{true, false} {
		got := streamChat(within(t, time.Minute), openaiClient(r), rig.ModelChat, words, usage)
		if got.err != nil || got.text != "[fake-chat-1] "+words || got.finish != "stop" || got.chunks < 10 {
			t.Errorf("usage %t: %d chunks, finish %q, %d characters, %v", usage, got.chunks, got.finish, len(got.text), got.err)
		}
		if (got.usage > 0) != usage {
			t.Errorf("usage %t: %d tokens told", usage, got.usage)
		}
	}
}

// streamConverse is what the official client makes of a stream.
func streamConverse(ctx context.Context, c *bedrockruntime.Client, model, text string) (said, stop string, tokens int32, err error) {
	out, err := c.ConverseStream(ctx, &bedrockruntime.ConverseStreamInput{
		ModelId:  aws.String(model),
		Messages: []types.Message{{Role: types.ConversationRoleUser, Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: text}}}},
	}, func(o *bedrockruntime.Options) { o.Retryer = aws.NopRetryer{} })
	if err != nil {
		return "", "", 0, err
	}
	s := out.GetStream()
	defer s.Close()
	for e := range s.Events() {
		switch e := e.(type) {
		case *types.ConverseStreamOutputMemberContentBlockDelta:
			if d, ok := e.Value.Delta.(*types.ContentBlockDeltaMemberText); ok {
				said += d.Value
			}
		case *types.ConverseStreamOutputMemberMessageStop:
			stop = string(e.Value.StopReason)
		case *types.ConverseStreamOutputMemberMetadata:
			tokens = aws.ToInt32(e.Value.Usage.TotalTokens)
		}
	}
	return said, stop, tokens, s.Err()
}

// A8, A11: the same of Bedrock's.
func TestStream_BedrockClient(t *testing.T) {
	t.Parallel()
	r := theRig(t)
	words := strings.Repeat("日本 🚀 words ", 50)
	said, stop, tokens, err := streamConverse(within(t, time.Minute), bedrockClient(t, r), rig.ModelConverse, words)
	if err != nil || said != "[fake.converse-v1:0] "+words || stop != "end_turn" || tokens == 0 {
		t.Errorf("said %d characters, stop %q, %d tokens, %v", len(said), stop, tokens, err)
	}
}

// D13, H24: what fails before the first content is tried again unseen; what fails after it ends with an error event.
func TestStream_ErrorsWithin(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	program := func(replies ...server.Reply) {
		t.Helper()
		if err := r.Fake.Program(server.Match{}, replies...); err != nil {
			t.Fatal(err)
		}
	}
	ctx := within(t, 2*time.Minute)
	words := strings.Repeat("word ", 30)
	for name, reply := range map[string]server.Reply{
		"error": {Fail: server.FailError, Code: "rate_limit_exceeded", Message: "too much", After: 9},
		"reset": {Fail: server.FailReset, After: 9}, "no end": {Fail: server.FailTruncate, After: 9},
	} {
		program(reply)
		before := len(r.Fake.Calls())
		got := streamChat(ctx, openaiClient(r), rig.ModelChat, words, false)
		if got.err == nil || !strings.Contains(got.err.Error(), "broke off") || got.text == "" || got.finish != "" {
			t.Errorf("%s: %q, finish %q, %v", name, got.text, got.finish, got.err)
		}
		if n := len(r.Fake.Calls()) - before; n != 1 {
			t.Errorf("%s: %d provider calls", name, n)
		}
	}
	program(server.Reply{Fail: server.FailError, Code: "rate_limit_exceeded", After: 1})
	if got := streamChat(ctx, openaiClient(r), rig.ModelChat, words, false); got.err != nil || got.text != "[fake-chat-1] "+words {
		t.Errorf("after a throttle before any content: %q, %v", got.text, got.err)
	}
	program(server.Reply{Status: 400, Message: "no such thing"})
	got := streamChat(ctx, openaiClient(r), rig.ModelChat, words, false)
	if apiErr, ok := errors.AsType[*openai.Error](got.err); !ok || apiErr.StatusCode != 400 || apiErr.Code != "provider_rejected" {
		t.Errorf("a refusal: %v", got.err)
	}
	program(server.Reply{Fail: server.FailError, Code: "throttlingException", Message: "Too many requests", After: 5})
	said, stop, _, err := streamConverse(ctx, bedrockClient(t, r), rig.ModelConverse, words)
	if _, ok := errors.AsType[*types.ModelStreamErrorException](err); !ok || said == "" || stop != "" {
		t.Errorf("converse: %q, stop %q, %v", said, stop, err)
	}
}

// A4, A22: the same id takes up a stream that still comes, and one that has ended, and gets every byte of it; nothing is
// paid for twice.
func TestStream_SameIDTakesItUpAgain(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	ctx := within(t, 2*time.Minute)
	if err := r.Fake.Program(server.Match{}, server.Reply{Fail: server.FailStall, After: 12}); err != nil {
		t.Fatal(err)
	}
	read := func(until string) string {
		t.Helper()
		resp := post(ctx, t, r, "stream-again", `{"model":"chat-a","stream":true,"messages":[{"role":"user","content":"one two three four five six seven eight nine ten eleven twelve"}]}`)
		defer resp.Body.Close()
		var all strings.Builder
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			fmt.Fprintln(&all, lines.Text())
			if until != "" && strings.Contains(lines.Text(), until) {
				break
			}
		}
		return all.String()
	}
	first := read("[fak") // its text comes in pieces of four letters
	if strings.Contains(first, "[DONE]") {
		t.Fatalf("the stream has ended: %s", first)
	}
	amid := make(chan string, 1)
	go func() { amid <- read("") }()
	if n := r.Fake.Release(server.Match{}); n != 1 {
		t.Errorf("released %d calls", n)
	}
	during, after := <-amid, read("")
	if during != after || !strings.HasPrefix(during, first) || !strings.HasSuffix(during, "data: [DONE]\n\n") || strings.Count(during, "[DONE]") != 1 {
		t.Errorf("first %q\nduring %q\nafter %q", first, during, after)
	}
	if n := len(r.Fake.Calls()); n != 1 {
		t.Errorf("%d provider calls", n)
	}
	resp := post(ctx, t, r, "stream-again", `{"model":"chat-a","messages":[{"role":"user","content":"one"}]}`)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a JSON call under the id of a stream: %s", resp.Status)
	}
}

func post(ctx context.Context, t *testing.T, r *rig.Rig, id, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.Key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// A22: the caller of a stream whose worker is killed is told within 50 s, and never that it is whole.
func TestStream_KilledWorkerEndsItWithAnError(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for a real lease to lapse, up to 45 s")
	}
	r := ownRig(t, rig.Options{})
	if err := r.Fake.Program(server.Match{}, server.Reply{Fail: server.FailStall, After: 12}); err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 3*time.Minute)
	ended, begun := make(chan heard, 1), make(chan struct{})
	go func() {
		var once sync.Once
		ended <- streamChatTo(ctx, openaiClient(r), rig.ModelChat, strings.Repeat("word ", 30), false, func(h heard) {
			if h.text != "" {
				once.Do(func() { close(begun) })
			}
		}, option.WithHeader("Idempotency-Key", "killed"))
	}()
	select {
	case <-begun:
	case e := <-ended:
		t.Fatalf("ended before the kill: %+v", e)
	}
	pid := 0
	for _, i := range r.Lambda.Instances(cloud.FunctionWorker(llmq.LaneRT)) {
		if i.State == lambda.StateBusy {
			pid = i.PID
		}
	}
	killed := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); pid == 0 || err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
	got := <-ended
	took := time.Since(killed)
	if got.err == nil || !strings.Contains(got.err.Error(), "not the whole of it") || got.text == "" || got.finish != "" {
		t.Errorf("%q, finish %q, %v", got.text, got.finish, got.err)
	}
	if took > 50*time.Second {
		t.Errorf("told after %v", took)
	}
	if again := streamChat(ctx, openaiClient(r), rig.ModelChat, strings.Repeat("word ", 30), false, option.WithHeader("Idempotency-Key", "killed")); again.err == nil {
		t.Errorf("taken up again: %q", again.text)
	}
	if n := len(r.Fake.Calls()); n != 1 {
		t.Errorf("%d provider calls; a stream that was begun is never made anew", n)
	}
	t.Logf("told %.1f s after the kill", took.Seconds())
}

// clockModel is served by a provider that says what time it is.
const clockModel = "clock"
