package admin

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// MS2: a redrive runs as admin, whose word on a tenant counts; so it sends again only what has a tenant by its sender,
// and states that one. What a worker buried carries the tenant that it found.
func TestRedrive_StatesTheTenantOfTheSender(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, sender, tenant, beside string // beside: what its attribute says
		want                         string // tenant; "" stays
	}{
		{name: "a worker's", sender: "worker", tenant: "acme", beside: "acme", want: "acme"},
		{name: "a worker's of a producer that names none", sender: "worker", beside: "billing", want: "billing"},
		{name: "a worker's without its tenant", sender: "worker", tenant: "acme"},
		{name: "a worker's of another tenant", sender: "worker", tenant: "acme", beside: "billing"},
		{name: "moved by SQS, ours", sender: "enqueue", tenant: "acme", want: "acme"},
		{name: "moved by SQS, ours, with something beside", sender: "enqueue", tenant: "acme", beside: "billing", want: "acme"},
		{name: "moved by SQS, a producer's", sender: "billing:host", beside: "acme", want: "billing"},
		{name: "moved by SQS, a producer's of another tenant", sender: "billing:host", tenant: "acme"},
		{name: "a stranger's", sender: "stranger", tenant: "acme", beside: "acme"},
		{name: "a stranger's session", sender: "stranger:worker", tenant: "acme", beside: "acme"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				body, err := llmq.Envelope{ID: "r", Op: llmq.OpChat, Model: "chat-a", Tenant: tt.tenant, Params: []byte(`{}`)}.Encode()
				if err != nil {
					t.Fatal(err)
				}
				attrs := map[string]string{queue.AttrReason: "worker_crash"}
				if tt.beside != "" {
					attrs[queue.AttrTenant] = tt.beside
				}
				if err := r.as(tt.sender).Send(t.Context(), dlq, queue.Outgoing{Body: body, Attributes: attrs}); err != nil {
					t.Fatal(err)
				}
				dry, err := r.Redrive(t.Context(), "arn:ops", RedriveRequest{Model: "chat-a", Lane: "bg", DryRun: true})
				if err != nil {
					t.Fatal(err)
				}
				out, _ := redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg"})
				got := r.drain(t, source)
				if tt.want == "" {
					if out.Moved != 0 || out.Unknown == 0 || dry.Matching != 0 || dry.Unknown != 1 || len(got) != 0 {
						t.Errorf("answers %+v and %+v, sent %d; want it left", dry, out, len(got))
					}
					return
				}
				if out.Moved != 1 || dry.Matching != 1 || len(got) != 1 {
					t.Fatalf("answers %+v and %+v, sent %d; want it sent", dry, out, len(got))
				}
				env, err := llmq.DecodeEnvelope(got[0].Body)
				if err != nil || env.Tenant != tt.want || got[0].Attributes[queue.AttrTenant] != "" {
					t.Errorf("sent as %s's with %v (%v), want %s's", env.Tenant, got[0].Attributes, err, tt.want)
				}
			})
		})
	}
}

// B10: what is sent again shares its queue fairly, as what callers send does.
func TestRedrive_GroupsByTenant(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, 1)
		redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg"})
		got, err := client(r.server, "test").ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{
			QueueUrl: aws.String("http://sqs.invalid/000000000000/" + string(source)), MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
		})
		if err != nil || len(got.Messages) != 1 {
			t.Fatalf("received %+v: %v", got, err)
		}
		if group := got.Messages[0].Attributes["MessageGroupId"]; group != llmq.TenantHash("acme") {
			t.Errorf("group %q, want acme's", group)
		}
	})
}
