package rig_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// B17, DS26, DS46: a message whose body kills the worker process is dead-lettered on its fifth takeover, and its neighbours
// succeed. Whoever asks the provider for it is killed by -9. Each lapse would take 45 s and each return of a message
// 55 s, so the test moves the leases of dead owners into the past and sends copies, as SQS may.
func TestPoison_IsDeadLetteredOnItsFifthTakeover(t *testing.T) {
	t.Parallel()
	asked, killed := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	replies := map[string]int{}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "poison") {
			select {
			case asked <- struct{}{}:
			case <-r.Context().Done():
			}
			<-r.Context().Done() // until its worker is dead
			return
		}
		select {
		case <-killed: // until then it runs on beside it
		case <-r.Context().Done():
			return
		}
		mu.Lock()
		defer mu.Unlock()
		_, name, _ := strings.Cut(string(body), "neighbour-")
		replies[name[:1]]++
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(provider.Close)
	r := ownRig(t, rig.Options{Change: func(c *config.Config) {
		c.Providers[0].BaseURL = provider.URL + "/v1"
		bg := c.Lanes[llmq.LaneBG]
		bg.Timeout = bg.MaxTimeout
		c.Lanes[llmq.LaneBG] = bg
	}})
	ctx := within(t, 2*time.Minute)
	const name = "llm-" + rig.ModelChat
	url := r.Config.Queues.URLBase + "/" + name
	send := func(ids ...string) {
		in := &awssqs.SendMessageBatchInput{QueueUrl: &url}
		for _, id := range ids {
			body := fmt.Sprintf(`{"v":1,"id":%q,"op":"chat","model":%q,"params":{"model":%q,"messages":[{"role":"user","content":%q}]}}`, id, rig.ModelChat, rig.ModelChat, id)
			in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(id), MessageBody: &body})
		}
		if out, err := r.Client(cloud.Producer).SendMessageBatch(ctx, in); err != nil || len(out.Failed) > 0 {
			t.Fatalf("send %v: %+v, %v", ids, out, err)
		}
	}
	store := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{r.Valkey.Addr()}, Password: r.Valkey.Password(), IsClusterMode: r.Valkey.Cluster()})
	defer func() { _ = store.Close() }()
	// claims are all that there are; lapse ends the leases of those that run, whose owners are dead.
	claims := func(lapse bool) (done, dead, takeovers int) {
		for keys := store.Scan(ctx, 0, "llmq:*clm:*", 1000).Iterator(); keys.Next(ctx); {
			c := store.HGetAll(ctx, keys.Val()).Val()
			switch {
			case c["state"] == "done" && c["dead"] == "1":
				dead++
				_, _ = fmt.Sscan(c["takeovers"], &takeovers)
			case c["state"] == "done":
				done++
			case c["state"] == "running" && lapse:
				store.HSet(ctx, keys.Val(), "until_ms", 0)
			}
		}
		return done, dead, takeovers
	}
	all := []string{"poison", "neighbour-1", "neighbour-2", "neighbour-3"}
	send(all...)
	kills := 0
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-asked:
			if kills++; kills == 2 {
				close(killed)
			}
			for _, i := range r.Lambda.Instances(cloud.FunctionWorker(llmq.LaneBG)) {
				if i.State == lambda.StateBusy {
					if err := syscall.Kill(i.PID, syscall.SIGKILL); err != nil {
						t.Errorf("kill: %v", err)
					}
				}
			}
			claims(true)
			send(all...)
			continue
		case <-tick.C:
		case <-ctx.Done():
			done, dead, _ := claims(false)
			t.Fatalf("after %d kills %d ended and %d are dead", kills, done, dead)
		}
		if done, dead, takeovers := claims(false); done == 3 && dead == 1 {
			if takeovers != 5 || kills != 5 {
				t.Errorf("dead after %d takeovers and %d kills, want 5 of each", takeovers, kills)
			}
			break
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(replies) != 3 {
		t.Errorf("replies by neighbour: %v", replies)
	}
	deadURL := url + "-dlq"
	out, err := r.Client(cloud.FunctionWorker(llmq.LaneBG)).ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{
		QueueUrl: &deadURL, MessageAttributeNames: []string{"All"}, WaitTimeSeconds: 2, MaxNumberOfMessages: 10,
	})
	if err != nil || len(out.Messages) != 1 {
		t.Fatalf("dead letters: %+v, %v; want one", out, err)
	}
	if got := aws.ToString(out.Messages[0].MessageAttributes[queue.AttrReason].StringValue); got != string(llmq.CodeWorkerCrash) {
		t.Errorf("reason %q", got)
	}
}
