package rig_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

type call struct {
	method, path, host, contentType string
	body                            string
	header                          map[string]string
	noKey                           bool
}

func send(t *testing.T, r *rig.Rig, c call) (*http.Response, []byte) {
	t.Helper()
	if c.method == "" {
		c.method = http.MethodPost
	}
	if c.path == "" {
		c.path = "/v1/chat/completions"
	}
	req, err := http.NewRequestWithContext(within(t, time.Minute), c.method, r.URL+c.path, strings.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	if !c.noKey {
		req.Header.Set("Authorization", "Bearer "+r.Key)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.contentType != "" {
		req.Header.Set("Content-Type", c.contentType)
	}
	for name, value := range c.header {
		req.Header.Set(name, value)
	}
	if c.host != "" {
		req.Host = c.host
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // it was read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, body
}

const fine = `{"model":"chat-a","messages":[{"role":"user","content":"x"}]}`

// SEC09, SEC10, SEC14, SEC15, SEC29: what can't work is refused at the door, through the
// real front and function, in the caller's shape; nothing reaches a provider.
func TestDoor_BadInputIsRefused(t *testing.T) { //nolint:tparallel // the subtests share one door, which is asked again after them
	t.Parallel()
	r := ownRig(t, rig.Options{})
	for _, tt := range []struct { //nolint:paralleltest // the subtests share what the test looks at in the end
		name   string
		call   call
		status int
		code   string
		says   string
	}{
		{"not JSON", call{body: "{not json"}, 400, "invalid_json", "byte"},
		{"empty body", call{body: ""}, 400, "", ""},
		{"a name twice", call{body: `{"model":"chat-a","model":"emb-a"}`}, 400, "invalid_json", "model"},
		{"a name twice, escaped", call{body: `{"model":"chat-a","\u006dodel":"emb-a"}`}, 400, "invalid_json", "model"},
		{"a name in other case", call{body: `{"Model":"chat-a"}`}, 400, "", "model"},
		{"model of the wrong type", call{body: `{"model":7}`}, 400, "invalid_request", "model"},
		{"no model", call{body: `{"messages":[]}`}, 400, "invalid_request", "model"},
		{"unknown model", call{body: `{"model":"chat-b"}`}, 404, "model_not_found", "chat-a"},
		{"wrong wire", call{body: `{"model":"conv-a"}`}, 400, "wrong_wire", "/model/conv-a/converse"},
		{"invalid UTF-8", call{body: "{\"model\":\"chat-a\",\"x\":\"\xff\"}"}, 400, "invalid_json", ""},
		{"half a surrogate pair", call{body: `{"model":"chat-a","x":"\ud83d"}`}, 400, "invalid_json", ""},
		{"depth bomb", call{body: strings.Repeat("[", 3<<20)}, 400, "", ""},
		{"too large", call{body: `{"model":"chat-a","x":"` + strings.Repeat("y", 4<<20) + `"}`}, 413, "request_too_large", "4"},
		{"wrong method", call{method: http.MethodGet, body: ""}, 405, "method_not_allowed", "POST"},
		{"wrong path", call{path: "/v2/chat", body: fine}, 404, "unknown_route", "/v1/chat/completions"},
		{"no key", call{body: fine, noKey: true}, 401, "invalid_api_key", ""},
		{"gzip", call{body: fine, header: map[string]string{"Content-Encoding": "gzip"}}, 415, "unsupported_media_type", ""},
		{"not a JSON type", call{body: fine, contentType: "text/plain"}, 415, "unsupported_media_type", ""},
		{"illegal id", call{body: fine, header: map[string]string{"Idempotency-Key": "a b"}}, 400, "invalid_request", "Idempotency-Key"},
		{"unknown lane", call{body: fine, header: map[string]string{"X-LLMQ-Lane": "fast"}}, 400, "invalid_request", "rt"},
		{"hostile host", call{body: fine, host: "evil.example"}, 403, "", ""},
		{"a page of another site", call{body: fine, header: map[string]string{"Origin": "https://evil.example"}}, 403, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) { // see above
			resp, body := send(t, r, tt.call)
			if resp.StatusCode != tt.status {
				t.Fatalf("status = %d, want %d; body %s", resp.StatusCode, tt.status, body)
			}
			if tt.status == 403 { // the gateway's own answer
				return
			}
			var e struct {
				Error struct {
					Message, Type string
					Code          *string
				}
			}
			if err := json.Unmarshal(body, &e); err != nil || e.Error.Code == nil || e.Error.Message == "" || e.Error.Type == "" {
				t.Fatalf("not OpenAI's error shape: %s", body)
			}
			if tt.code != "" && *e.Error.Code != tt.code {
				t.Errorf("code = %s, want %s", *e.Error.Code, tt.code)
			}
			if !strings.Contains(e.Error.Message, tt.says) {
				t.Errorf("message %q does not say %q", e.Error.Message, tt.says)
			}
			if got := resp.Header.Get("X-Should-Retry"); got != "false" {
				t.Errorf("x-should-retry = %q", got)
			}
		})
	}
	if n := len(r.Fake.Calls()); n != 0 {
		t.Errorf("the provider saw %d calls", n)
	}
	if resp, body := send(t, r, call{body: fine}); resp.StatusCode != 200 {
		t.Errorf("afterwards a good call gets %d: %s", resp.StatusCode, body)
	}
}

// A10, H10c: the same key never runs twice; another body under it is refused.
func TestDoor_SameKeyRunsOnce(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	key := map[string]string{"Idempotency-Key": "k1"}
	_, first := send(t, r, call{body: fine, header: key})
	respaced := `{ "messages" : [{"content":"x","role":"user"}], "model":"chat-a" }`
	resp, again := send(t, r, call{body: respaced, header: key})
	if resp.StatusCode != 200 || !bytes.Equal(first, again) {
		t.Errorf("the repeat got %d %s, want the first answer %s", resp.StatusCode, again, first)
	}
	resp, body := send(t, r, call{body: strings.Replace(fine, `"x"`, `"y"`, 1), header: key})
	if resp.StatusCode != 422 || !strings.Contains(string(body), "idempotency_mismatch") {
		t.Errorf("another body got %d %s", resp.StatusCode, body)
	}
	if n := len(r.Fake.Calls()); n != 1 {
		t.Errorf("the provider saw %d calls, want 1", n)
	}
}

// B9: a large body and a large reply travel through S3 and arrive byte for byte, and the request's body is gone once
// its message is; so is the message.
func TestDoor_LargeBodyGoesThroughTheBucket(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("日本 <&> ", 100_000)
	content, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	r := theRig(t)
	resp, body := send(t, r, call{body: `{"model":"chat-a","messages":[{"role":"user","content":` + string(content) + `}]}`})
	if resp.StatusCode != 200 {
		t.Fatalf("status = %d: %.300s", resp.StatusCode, body)
	}
	var got struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal(body, &got); err != nil || len(got.Choices) != 1 || got.Choices[0].Message.Content != "[fake-chat-1] "+text {
		t.Errorf("the reply of %d bytes is not what was sent (%v)", len(body), err)
	}
	store := s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: &r.Config.Storage.Endpoint, UsePathStyle: true, Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""),
	})
	ctx := within(t, time.Minute)
	eventually(t, "no request's body is left", func() bool {
		out, err := store.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &r.Config.Storage.Bucket, Prefix: aws.String("off/")})
		return err == nil && len(out.Contents) == 0
	})
	if out, err := store.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &r.Config.Storage.Bucket, Prefix: aws.String("res/")}); err != nil || len(out.Contents) == 0 {
		t.Errorf("the bucket holds no reply either (%v)", err)
	}
}

// B4, DS1, DS3, H08, SEC16: bad messages go to the dead-letter queue with their reason; their
// neighbours are served. A newer version stays on its queue.
func TestQueue_BadMessagesNeverTouchTheirNeighbours(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	api := r.Client(cloud.Producer)
	ctx := within(t, time.Minute)
	url := r.Config.Queues.URLBase + "/llm-chat-a"
	good := func(id string) string {
		return fmt.Sprintf(`{"v":1,"id":%q,"op":"chat","model":"chat-a","params":{"model":"chat-a","messages":[{"role":"user","content":%q}]}}`, id, id)
	}
	bodies := []string{
		good("r-1"), "not json {", `{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}`, `{"v":2,"anything":true}`,
		`{"v":1,"id":"r-5","op":"chat","params":{}}`, `{"v":1,"id":"r-6","op":"chat","model":"emb-a","params":{"model":"emb-a"}}`,
		`{"v":1,"id":"r-7","op":"chat","model":"chat-a","params":{},"base_url":"http://evil"}`,
		`["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"b","s3Key":"k"}]`, good("r-9"),
	}
	for _, b := range bodies {
		if _, err := api.SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(b)}); err != nil {
			t.Fatal(err)
		}
	}
	// SEC16: nobody listed it, whatever it calls its session.
	stranger := good("r-10")
	if _, err := r.Client("stranger:"+cloud.Producer).SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(stranger)}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		stranger: "sender_not_allowed", bodies[1]: "bad_envelope", bodies[2]: "bad_envelope", bodies[4]: "bad_envelope", bodies[5]: "wrong_queue",
		bodies[6]: "bad_envelope", bodies[7]: "bad_envelope",
	}
	dead := drain(ctx, t, api, url+"-dlq", len(want))
	for body, reason := range want {
		if dead[body] != reason {
			t.Errorf("%.60s: reason %q, want %q", body, dead[body], reason)
		}
	}
	eventually(t, "r-1 and r-9 are served", func() bool {
		served := map[string]bool{}
		for _, c := range r.Fake.Calls() {
			served[string(c.Body)] = true
		}
		return len(served) == 2
	})
	eventually(t, "only the newer message is left", func() bool {
		out, err := api.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"All"}})
		return err == nil && out.Attributes["ApproximateNumberOfMessages"] == "0" && out.Attributes["ApproximateNumberOfMessagesNotVisible"] == "1"
	})
}

// eventually waits, within a bound, for what the processes of a rig bring about.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(30 * time.Second); !holds(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not so within 30 s: %s", what)
		}
	}
}

// drain receives n messages and returns the reason of each by its body.
func drain(ctx context.Context, t *testing.T, api *awssqs.Client, url string, n int) map[string]string {
	t.Helper()
	got := map[string]string{}
	for len(got) < n {
		out, err := api.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10, WaitTimeSeconds: 5, MessageAttributeNames: []string{"All"}})
		if err != nil {
			t.Fatalf("after %d of %d dead letters: %v", len(got), n, err)
		}
		for _, m := range out.Messages {
			reason := ""
			if a, ok := m.MessageAttributes["llmq_reason"]; ok {
				reason = aws.ToString(a.StringValue)
			}
			got[aws.ToString(m.Body)] = reason
		}
	}
	return got
}

// SEC29: nothing listens on anything but loopback, and the admin API wants its key.
func TestCloud_ListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	r := theRig(t)
	for _, u := range []string{r.URL, r.TLSURL, r.AdminURL, r.Config.Queues.Endpoint, r.Config.Storage.Endpoint, "x://" + r.Valkey.Addr()} {
		host, _, err := net.SplitHostPort(u[strings.Index(u, "://")+3:])
		if err != nil || !net.ParseIP(host).IsLoopback() {
			t.Errorf("%s is not on loopback (%v)", u, err)
		}
	}
	for _, key := range []string{"", r.Key, r.AdminKey} {
		req, err := http.NewRequestWithContext(within(t, time.Minute), http.MethodGet, r.AdminURL+"/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body) // it is looked at below
		resp.Body.Close()                // it was read
		if key == r.AdminKey {
			if resp.StatusCode != 200 || !strings.Contains(string(body), `"queue":"llm-chat-a-rt"`) {
				t.Errorf("status answers %d %s", resp.StatusCode, body)
			}
		} else if resp.StatusCode != 401 {
			t.Errorf("a caller's key gets %d from the admin API", resp.StatusCode)
		}
	}
}

// A13, DS24: what a producer put on a queue is fetched over HTTPS by its id and body, as
// events/README.md says; another body under the id is refused.
func TestQueue_ProducerFetchesItsAnswer(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	message, err := os.ReadFile("../../events/envelope-minimal.json")
	if err != nil {
		t.Fatal(err)
	}
	var env struct {
		ID     string          `json:"id"`
		Params json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(message, &env); err != nil {
		t.Fatal(err)
	}
	url := r.Config.Queues.URLBase + "/llm-chat-a"
	if _, err := r.Client(cloud.Producer).SendMessage(within(t, time.Minute), &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(string(message))}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the message has run", func() bool { return len(r.Fake.Calls()) == 1 })
	key := map[string]string{"Idempotency-Key": env.ID}
	if resp, body := send(t, r, call{body: string(env.Params), header: key}); resp.StatusCode != 200 || !strings.Contains(string(body), "café ☕") {
		t.Errorf("the answer is %d %s", resp.StatusCode, body)
	}
	if resp, body := send(t, r, call{body: fine, header: key}); resp.StatusCode != 422 {
		t.Errorf("another body gets %d %s", resp.StatusCode, body)
	}
	if n := len(r.Fake.Calls()); n != 1 {
		t.Errorf("the provider saw %d calls, want 1", n)
	}
}

// B1: where a model has no queue for bulk, its bulk calls share that of bg: through the door, and of a producer that sends
// there.
func TestQueue_BulkFallsBackToTheDefaultQueue(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{Change: func(c *config.Config) { c.Models[0].Lanes = []llmq.Lane{llmq.LaneRT, llmq.LaneBG} }})
	if resp, body := send(t, r, call{body: fine, header: map[string]string{"X-LLMQ-Lane": "bulk"}}); resp.StatusCode != 200 {
		t.Errorf("the door answers %d %s", resp.StatusCode, body)
	}
	url := r.Config.Queues.URLBase + "/llm-chat-a"
	message := `{"v":1,"id":"b","op":"chat","model":"chat-a","lane":"bulk","params":{"model":"chat-a","messages":[{"role":"user","content":"bulk"}]}}`
	if _, err := r.Client(cloud.Producer).SendMessage(within(t, time.Minute), &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(message)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both have run", func() bool { return len(r.Fake.Calls()) == 2 })
}
