package rig_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// biller is a service of somebody else's, with a queue of its own for replies.
type biller struct {
	*rig.Rig
	api *awssqs.Client
	s3  *s3.Client
	url string // of its queue
}

// answer is a reply, as its producer reads it.
type answer struct {
	V      int                    `json:"v"`
	Status int                    `json:"status"`
	Meta   llmq.Meta              `json:"meta"`
	Error  *struct{ Code string } `json:"error"`
	Ref    *llmq.Ref              `json:"ref"`
	Body   json.RawMessage        `json:"body"`
}

const (
	billerTenant = "billing"
	billerQueue  = "billing-replies"
)

func newBiller(t *testing.T, output io.Writer) *biller {
	t.Helper()
	r, err := rig.Start(within(t, time.Minute), rig.Options{
		Functions: functions, Output: output,
		Change: func(c *config.Config) {
			c.Producers = append(c.Producers, config.Producer{
				Name: "billing", SenderID: "biller", Tenant: billerTenant,
				Replies: []string{"done=sqs:" + billerQueue, "archive=s3", "gone=sqs:gone-replies", "locked=sqs:locked-replies"},
			})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(r); err != nil {
			t.Error(err)
		}
	})
	b := &biller{Rig: r, api: r.Client("biller"), s3: s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: &r.Config.Storage.Endpoint, UsePathStyle: true, Credentials: credentials.NewStaticCredentialsProvider("biller", "s", ""),
	})}
	b.url = b.makeQueue(t, billerQueue)
	return b
}

func (b *biller) makeQueue(t *testing.T, name string) string {
	t.Helper()
	out, err := b.api.CreateQueue(within(t, time.Minute), &awssqs.CreateQueueInput{QueueName: &name})
	if err != nil {
		t.Fatal(err)
	}
	return aws.ToString(out.QueueUrl)
}

// ask sends a call of the lane bg. more are members of its message beside those that all have.
func (b *biller) ask(t *testing.T, api *awssqs.Client, id, text, more string) (body string) {
	t.Helper()
	body = fmt.Sprintf(`{"v":1,"id":%q,"op":"chat","model":%q%s,"params":{"model":%q,"messages":[{"role":"user","content":%q}]}}`, id, rig.ModelChat, more, rig.ModelChat, text)
	url := b.Config.Queues.URLBase + "/llm-" + rig.ModelChat
	if _, err := api.SendMessage(within(t, time.Minute), &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: &body}); err != nil {
		t.Fatalf("send %s: %v", id, err)
	}
	return body
}

// read receives and deletes what comes on a queue until enough of it has, and a second longer, and returns the replies by request.
func (b *biller) read(ctx context.Context, t *testing.T, url string, enough int) map[string][]answer {
	t.Helper()
	got, n := map[string][]answer{}, 0
	for {
		out, err := b.api.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10, WaitTimeSeconds: 1, MessageAttributeNames: []string{"All"}})
		if err != nil {
			t.Fatalf("after %d of %d replies: %v", n, enough, err)
		}
		for _, m := range out.Messages {
			var r answer
			if err := json.Unmarshal([]byte(aws.ToString(m.Body)), &r); err != nil || r.V != 1 {
				t.Fatalf("no reply: %.200s (%v)", aws.ToString(m.Body), err)
			}
			if id := aws.ToString(m.MessageAttributes["llmq_request_id"].StringValue); id != r.Meta.RequestID {
				t.Errorf("the attribute names %q, the reply %q", id, r.Meta.RequestID)
			}
			got[r.Meta.RequestID] = append(got[r.Meta.RequestID], r)
			n++
			if _, err := b.api.DeleteMessage(ctx, &awssqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
				t.Fatal(err)
			}
		}
		if len(out.Messages) == 0 && n >= enough {
			return got
		}
	}
}

// object is what lies in the data bucket under a key, as its producer's role may read it.
func (b *biller) object(ctx context.Context, key string) ([]byte, error) {
	out, err := b.s3.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.Config.Storage.Bucket, Key: &key})
	if err != nil {
		return nil, err
	}
	defer out.Body.Close() // it is read
	return io.ReadAll(out.Body)
}

// archived is the name of an object that holds a reply, as events/README.md tells.
func archived(id string) string {
	r := llmq.Request{ID: id, Tenant: billerTenant}
	return "res/" + llmq.TenantHash(billerTenant) + "/reply-archive-" + string(r.RID())
}

func (b *biller) calls(id string) (n int) {
	for _, c := range b.Fake.Calls() {
		if bytes.Contains(c.Body, []byte(`"`+id+`"`)) {
			n++
		}
	}
	return n
}

// A13, DS53: on the real functions. Every end is told once, on a queue and in the bucket: replies, large ones by reference, errors, ends
// without a call. A message that names no target of its sender's, or whose sender nobody listed, is dead-lettered with its reason, and tells nobody.
func TestReplies_EachEndIsToldOnce(t *testing.T) {
	t.Parallel()
	b := newBiller(t, os.Stderr)
	ctx := within(t, 2*time.Minute)
	const each = 100
	const done, archive = `,"reply_to":"done"`, `,"reply_to":"archive"`
	began := time.Now()
	for i := range each {
		b.ask(t, b.api, fmt.Sprintf("q-%d", i), fmt.Sprintf("q-%d", i), done)
		b.ask(t, b.api, fmt.Sprintf("o-%d", i), fmt.Sprintf("o-%d", i), archive)
	}
	b.ask(t, b.api, "q-0", "q-0", done) // a copy, as SQS may make one
	large := strings.Repeat("日本", 50_000)
	b.ask(t, b.api, "large", large, done)
	if err := b.Fake.Program(server.Match{Model: "fake-embed-1"}, server.Reply{Status: http.StatusBadRequest, Message: "no such thing"}); err != nil {
		t.Fatal(err)
	}
	refused := `{"v":1,"id":"refused","op":"embeddings","model":"emb-a","reply_to":"done","params":{"model":"emb-a","input":"x"}}`
	embeds := b.Config.Queues.URLBase + "/llm-" + rig.ModelEmbed
	if _, err := b.api.SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &embeds, MessageBody: &refused}); err != nil {
		t.Fatal(err)
	}
	b.ask(t, b.api, "late", "late", done+`,"deadline_ms":1000000000000`)
	bad := map[string]string{
		b.ask(t, b.api, "misspelt", "misspelt", `,"reply_to":"dome"`):                  "bad_envelope",
		b.ask(t, b.Client("stranger:biller"), "stranger", "stranger", done):            "sender_not_allowed",
		b.ask(t, b.Client(cloud.Producer), "another", "another", `,"reply_to":"gone"`): "bad_envelope", // a target of another's
	}

	got := b.read(ctx, t, b.url, each+3)
	took := time.Since(began)
	for id, replies := range got {
		if len(replies) != 1 {
			t.Errorf("%s was told %d times", id, len(replies))
		}
		first := replies[0]
		switch {
		case id == "refused" && (first.Error == nil || first.Error.Code != "provider_rejected"),
			id == "late" && (first.Error == nil || first.Error.Code != "expired"):
			t.Errorf("%s: told %+v", id, first.Error)
		case strings.HasPrefix(id, "q-") && !bytes.Contains(first.Body, []byte(`[fake-chat-1] `+id+`"`)):
			t.Errorf("%s: told %s", id, first.Body)
		}
	}
	if len(got) != each+3 {
		t.Errorf("%d requests were told of on the queue, want %d", len(got), each+3)
	}
	if l := got["large"]; len(l) == 1 {
		if l[0].Ref == nil || l[0].Body != nil {
			t.Fatalf("the large reply is no reference: %+v", l[0])
		}
		body, err := b.object(ctx, l[0].Ref.Key)
		sum := sha256.Sum256(body)
		if err != nil || int64(len(body)) != l[0].Ref.Bytes || hex.EncodeToString(sum[:]) != l[0].Ref.SHA256 || !bytes.Contains(body, []byte("[fake-chat-1] "+large)) {
			t.Errorf("the large reply's object has %d bytes, its reference says %+v (%v)", len(body), l[0].Ref, err)
		}
	}
	for i := range each {
		id := fmt.Sprintf("o-%d", i)
		var r answer
		eventually(t, id+" lies in the bucket", func() bool {
			body, err := b.object(ctx, archived(id))
			return err == nil && json.Unmarshal(body, &r) == nil
		})
		if r.Meta.RequestID != id || !bytes.Contains(r.Body, []byte(`[fake-chat-1] `+id+`"`)) {
			t.Errorf("%s: archived %+v", id, r)
		}
	}
	dead := drain(ctx, t, b.api, b.Config.Queues.URLBase+"/llm-"+rig.ModelChat+"-dlq", len(bad))
	for body, reason := range bad {
		if dead[body] != reason {
			t.Errorf("%.60s: reason %q, want %q", body, dead[body], reason)
		}
	}
	if n := len(b.Fake.Calls()); n != 2*each+2 {
		t.Errorf("the provider saw %d calls, want %d", n, 2*each+2)
	}
	t.Logf("%d replies by queue (one of %d bytes by reference, two errors) and %d by bucket, each once, %.1f s from the first message; 3 dead letters",
		len(got), got["large"][0].Ref.Bytes, each, took.Seconds())
}

// A13, DS53: a queue of replies that is gone, or refuses, costs neither the reply nor a second call: the failure is logged, tried again every
// 30 s, and told once the queue takes it. An answer that was lost tells twice, under one id.
func TestReplies_AQueueThatIsAwayIsTriedAgain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for the next try of a reply, half a minute")
	}
	output := &lines{}
	b := newBiller(t, output)
	ctx := within(t, 2*time.Minute)
	locked := b.makeQueue(t, "locked-replies")
	open := b.SQS.Inject(sqs.Fault{Kind: sqs.Refuse, Op: "SendMessage", Queue: "locked-replies", Code: "AccessDenied", Status: http.StatusForbidden})
	defer b.SQS.Inject(sqs.Fault{Kind: sqs.LoseAnswer, Op: "SendMessage", Queue: billerQueue, Times: 1})()
	b.ask(t, b.api, "gone", "gone", `,"reply_to":"gone"`)
	b.ask(t, b.api, "locked", "locked", `,"reply_to":"locked"`)
	b.ask(t, b.api, "lost", "lost", `,"reply_to":"done"`)
	eventually(t, "both failures are logged", func() bool { return output.count("producer not told") >= 2 })
	failed := time.Now()
	for _, name := range []string{`"reply_to":"gone"`, `"reply_to":"locked"`} {
		if output.count(name) == 0 {
			t.Errorf("no line of the log says %s", name)
		}
	}
	gone := b.makeQueue(t, "gone-replies")
	open()
	for url, id := range map[string]string{gone: "gone", locked: "locked"} {
		got := b.read(ctx, t, url, 1)
		if len(got) != 1 || len(got[id]) != 1 || got[id][0].Status != http.StatusOK {
			t.Errorf("%s: told %+v", id, got)
		}
	}
	late := time.Since(failed)
	twice := b.read(ctx, t, b.url, 2)
	if len(twice) != 1 || len(twice["lost"]) != 2 || !bytes.Equal(twice["lost"][0].Body, twice["lost"][1].Body) {
		t.Errorf("where the send's answer was lost: told %+v", twice)
	}
	for _, id := range []string{"gone", "locked", "lost"} {
		if n := b.calls(id); n != 1 {
			t.Errorf("the provider saw %s %d times", id, n)
		}
	}
	t.Logf("a queue that was not there and one that refused were told %.1f s after their first failure, each once; a lost answer told twice under one id; one provider call each", late.Seconds())
}

// A13, DS53: a worker is killed between the store of an end and the reply to its producer. The reply still comes, once, and nothing is
// called again.
func TestReplies_AWorkerKilledBeforeItTells(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for a real lease to lapse, about a minute")
	}
	b := newBiller(t, os.Stderr)
	ctx := within(t, 2*time.Minute)
	release := b.SQS.Inject(sqs.Fault{Kind: sqs.Hang, Op: "SendMessage", Queue: billerQueue})
	b.ask(t, b.api, "cut", "cut", `,"reply_to":"done"`)
	store := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{b.Valkey.Addr()}, Password: b.Valkey.Password(), IsClusterMode: b.Valkey.Cluster()})
	defer store.Close() // it was only read
	rid := string(llmq.Request{ID: "cut", Tenant: billerTenant}.RID())
	eventually(t, "the end is stored", func() bool {
		return store.Scan(ctx, 0, "llmq:*res:*"+rid+"*", 1000).Iterator().Next(ctx)
	})
	workers := b.Workers(llmq.LaneBG)
	for _, w := range workers {
		if err := syscall.Kill(w.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	killed := time.Now()
	if len(workers) == 0 {
		t.Fatal("no worker was there to be killed")
	}
	release()
	got := b.read(ctx, t, b.url, 1)
	took := time.Since(killed)
	if len(got) != 1 || len(got["cut"]) != 1 || !bytes.Contains(got["cut"][0].Body, []byte("[fake-chat-1] cut")) {
		t.Errorf("told %+v", got)
	}
	if n := len(b.Fake.Calls()); n != 1 {
		t.Errorf("the provider saw %d calls, want 1", n)
	}
	eventually(t, "the message is gone", func() bool {
		url := b.Config.Queues.URLBase + "/llm-" + rig.ModelChat
		out, err := b.api.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"All"}})
		return err == nil && out.Attributes["ApproximateNumberOfMessages"] == "0" && out.Attributes["ApproximateNumberOfMessagesNotVisible"] == "0"
	})
	t.Logf("told once, %.1f s after the kill (the message's lease is 55 s); one provider call", took.Seconds())
}
