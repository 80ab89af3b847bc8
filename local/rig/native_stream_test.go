package rig_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
)

// event is one of a stream of ours.
type event struct {
	id         int64
	name, data string
}

// follow reads a call's stream from an event on, until enough says so or it ends.
func follow(ctx context.Context, r *rig.Rig, id string, after int64, enough func(event) bool) (events []event, status int, err error) {
	resp, err := native(ctx, r, "GET", "/"+id+"/stream", "", "Last-Event-ID", strconv.FormatInt(after, 10))
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close() // it may be in the midst, which is what is wanted
	if resp.StatusCode != http.StatusOK {
		return nil, resp.StatusCode, nil
	}
	var e event
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			if e.id, err = strconv.ParseInt(value, 10, 64); err != nil {
				return events, resp.StatusCode, err
			}
		case "event":
			e.name = value
		case "data":
			e.data += value
		case "":
			if e.data == "" {
				continue // a comment's
			}
			events = append(events, e)
			if enough(e) {
				return events, resp.StatusCode, nil
			}
			e = event{}
		}
	}
	return events, resp.StatusCode, lines.Err()
}

// A11, A22: a stream's reader is cut off in its midst and goes on after the last event that it has: on both wires it gets every
// byte of the result, and each once.
func TestNative_StreamIsTakenUpAfterItsLastEvent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, body string
		framed     func(t *testing.T, events []event) []byte // the events as the provider's wire has them
		reply      func(t *testing.T, result []byte) []byte  // of the result, to compare it with
	}{
		{
			"openai", `{"id":"s","op":"chat","model":"chat-a","body":{"stream":true,"messages":[{"role":"user","content":"one two three four five six"}]}}`,
			func(_ *testing.T, events []event) (all []byte) {
				for _, e := range events {
					all = append(all, "data: "+e.data+"\n\n"...)
				}
				return all
			},
			func(_ *testing.T, result []byte) []byte { return result },
		},
		{
			"bedrock", `{"id":"s","op":"converse_stream","model":"conv-a","body":{"messages":[{"role":"user","content":[{"text":"one two three four five six"}]}]}}`,
			func(_ *testing.T, events []event) (all []byte) {
				for _, e := range events {
					all = append(all, strconv.FormatInt(e.id, 10)+" "+e.name+" "+e.data+"\n"...)
				}
				return all
			},
			func(t *testing.T, result []byte) (all []byte) {
				t.Helper()
				for from := bytes.NewReader(result); from.Len() > 0; {
					m, err := eventstream.NewDecoder().Decode(from, nil)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, strconv.Itoa(len(result)-from.Len())+" "+m.Headers.Get(":event-type").String()+" "+string(m.Payload)+"\n"...)
				}
				return all
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := ownRig(t, rig.Options{})
			if err := r.Fake.Program(server.Match{}, server.Reply{Fail: server.FailStall, After: 8}); err != nil {
				t.Fatal(err)
			}
			ctx := within(t, time.Minute)
			if got := tell(t, r, "POST", "", tc.body); got.status != http.StatusAccepted {
				t.Fatalf("submitted: %d %s", got.status, got.raw)
			}
			n := 0
			first, status, err := follow(ctx, r, "s", 0, func(event) bool { n++; return n == 4 })
			if err != nil || status != http.StatusOK || len(first) != 4 {
				t.Fatalf("the first reader: %d, %d events, %v", status, len(first), err)
			}
			r.Fake.Release(server.Match{})
			rest, status, err := follow(ctx, r, "s", first[3].id, func(event) bool { return false })
			if err != nil || status != http.StatusOK || len(rest) < 5 || rest[len(rest)-1].name != "llmq.done" {
				t.Fatalf("the second reader: %d, %d events, %v", status, len(rest), err)
			}
			done := rest[len(rest)-1]
			resp, err := native(ctx, r, "GET", "/s/result", "")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close() // it was read to its end
			result, err := io.ReadAll(resp.Body)
			if err != nil || int64(len(result)) != done.id {
				t.Fatalf("the result has %d bytes, the stream %d; %v", len(result), done.id, err)
			}
			got, want := tc.framed(t, append(first, rest[:len(rest)-1]...)), tc.reply(t, result)
			if !bytes.Equal(got, want) {
				t.Errorf("read in two parts %q\nthe result %q", got, want)
			}
			if now := tell(t, r, "GET", "/s", ""); !bytes.Equal(now.Result.Raw, result) {
				t.Errorf("in the call the result is %q", now.Result.Raw)
			}
			if _, status, _ := follow(ctx, r, "s", first[3].id+1, func(event) bool { return false }); status != http.StatusBadRequest {
				t.Errorf("from the midst of an event: %d", status)
			}
			if n := len(r.Fake.Calls()); n != 1 {
				t.Errorf("%d provider calls", n)
			}
		})
	}
}
