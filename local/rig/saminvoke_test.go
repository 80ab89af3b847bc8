package rig_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/llm-queue/llmq/local/cloud/eventsource"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// elasticSender is what ElasticMQ calls every sender.
const elasticSender = "127.0.0.1"

// samRig runs the template's functions beside a rig's own, on its parts: as sam local would on those of
// docker-compose.yml, but that queues feed the workers.
type samRig struct {
	*rig.Rig
	functions map[string]samFunction
}

func newSAMRig(t *testing.T) *samRig {
	t.Helper()
	// The rig's own functions get queues of other names, so that they take no message of these.
	s := &samRig{Rig: ownRig(t, rig.Options{Change: func(c *config.Config) { c.Queues.Prefix = "rig" }})}
	s.functions, _ = samFunctions(t)
	for _, f := range s.functions {
		s.create(t, f)
	}
	s.feed(t)
	return s
}

// create makes a function of the real binary, with the packed file and exactly the variables that sam hands over.
func (s *samRig) create(t *testing.T, f samFunction) {
	t.Helper()
	text, err := os.ReadFile(repository + "/local/llmq.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fake := strings.TrimSuffix(s.Config.Providers[0].BaseURL, "/v1")
	text = bytes.ReplaceAll(text, []byte("http://127.0.0.1:8090"), []byte(fake))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "llmq.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	bootstrap := map[string]string{"enqueue": functions.Enqueue, "admin": functions.Admin, "worker": functions.Worker}[path.Base(f.CodeURI)]
	if err := s.Lambda.Create(lambda.FunctionConfig{
		Name: f.Name, Bootstrap: bootstrap, Dir: dir, Env: s.environment(t, f), Handler: f.Handler,
		Timeout: time.Duration(f.TimeoutSecs) * time.Second, MemoryMB: f.MemoryMB,
	}); err != nil {
		t.Fatal(err)
	}
}

// environment is what sam resolves: credentials, then each variable that the template lists, by its value or the shell's.
// The hosts of docker-compose.yml become the rig's parts, and their secrets the rig's.
func (s *samRig) environment(t *testing.T, f samFunction) []string {
	t.Helper()
	shell := composeEnv(t)
	host, port, err := net.SplitHostPort(s.Valkey.Addr())
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.NewReplacer("http://elasticmq:9324", s.Config.Queues.Endpoint, "http://s3:7070", s.Config.Storage.Endpoint)
	ours := map[string]string{"LLMQ_REDIS_HOST": host, "LLMQ_REDIS_PORT": port, "LLMQ_REDIS_PASSWORD": s.Valkey.Password()}
	for _, kv := range s.Environ() {
		if name, value, _ := strings.Cut(kv, "="); name == "LLMQ_FAKELLM_KEY" {
			ours[name] = value
		}
	}
	env := map[string]string{
		"AWS_SAM_LOCAL":         "true",
		"AWS_ACCESS_KEY_ID":     elasticSender, // whom the rig's SQS shows as sender
		"AWS_SECRET_ACCESS_KEY": shell["AWS_SECRET_ACCESS_KEY"],
	}
	for name, value := range f.Environment.Variables {
		if told, ok := shell[name]; ok {
			value = told
		}
		if own, ok := ours[name]; ok {
			value = own
		}
		env[name] = parts.Replace(value)
	}
	return pairs(env)
}

// feed makes the queues of the configuration and has them read by the workers.
func (s *samRig) feed(t *testing.T) {
	t.Helper()
	cfg, err := config.Load(repository+"/local/llmq.yaml", pairs(composeEnv(t)))
	if err != nil {
		t.Fatal(err)
	}
	api := s.Client("template")
	ctx, stop := context.WithCancel(context.Background())
	var sources sync.WaitGroup
	t.Cleanup(func() { stop(); sources.Wait() })
	for _, m := range cfg.Models {
		for _, lane := range m.Lanes {
			name := string(cfg.Queues.Names().Model(m.Alias, lane))
			for _, q := range []string{name + "-dlq", name} {
				if _, err := api.CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: &q, Attributes: map[string]string{
					"VisibilityTimeout": strconv.Itoa(int(cfg.Lanes[lane].FunctionTimeout.Seconds())),
				}}); err != nil {
					t.Fatal(err)
				}
			}
			source, err := eventsource.New(eventsource.Mapping{
				Function: "llmq-local-worker-" + string(lane), QueueURL: s.Config.Queues.URLBase + "/" + name, QueueARN: "arn:aws:sqs:us-east-1:000000000000:" + name,
				Region: "us-east-1", BatchSize: 10, MaximumConcurrency: 2, ReportBatchItemFailures: true,
			}, eventsource.DefaultTuning(), eventsource.Deps{Queue: api, Invoker: s.Lambda})
			if err != nil {
				t.Fatal(err)
			}
			sources.Go(func() {
				if err := source.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// invoke is `sam local invoke ID -e FILE`, with text of the file replaced.
func (s *samRig) invoke(t *testing.T, id, file string, replace ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(repository + "/events/" + file)
	if err != nil {
		t.Fatal(err)
	}
	event := strings.NewReplacer(replace...).Replace(string(text))
	out, err := s.Lambda.Invoke(within(t, time.Minute), s.functions[id].Name, []byte(event), lambda.InvokeOptions{})
	if err != nil || out.FunctionError != "" {
		t.Fatalf("%s of %s: %v %s %s", id, file, err, out.FunctionError, out.Payload)
	}
	return out.Payload
}

// doorAnswer splits what the door answers to Lambda: a head, eight zero bytes, the body.
func doorAnswer(t *testing.T, payload []byte) (status int, body string) {
	t.Helper()
	head, rest, ok := bytes.Cut(payload, make([]byte, 8))
	var h struct {
		StatusCode int `json:"statusCode"`
	}
	if err := json.Unmarshal(head, &h); err != nil || !ok {
		t.Fatalf("the door answered %q (%v)", payload, err)
	}
	return h.StatusCode, string(rest)
}

// G2: every file of events/ that is for a function is taken by it, under the environment that sam would give it.
func TestSAM_EveryEventRunsThroughItsFunction(t *testing.T) {
	t.Parallel()
	s := newSAMRig(t)

	var admin struct {
		StatusCode int    `json:"statusCode"`
		Body       string `json:"body"`
	}
	var made issued
	if err := json.Unmarshal(s.invoke(t, "Admin", "admin-key-create.json"), &admin); err != nil || admin.StatusCode != 200 {
		t.Fatalf("admin answered %+v, %v", admin, err)
	}
	if err := json.Unmarshal([]byte(admin.Body), &made); err != nil || made.Key == "" {
		t.Fatalf("no key in %s (%v)", admin.Body, err)
	}

	if status, body := doorAnswer(t, s.invoke(t, "Enqueue", "door-health.json")); status != 200 {
		t.Errorf("health: %d %s", status, body)
	}
	for file, want := range map[string]string{
		"door-chat.json": "[fake-chat-1] café ☕", "door-embeddings.json": `"embedding"`, "door-converse.json": "Say hello.",
	} {
		if status, _ := doorAnswer(t, s.invoke(t, "Enqueue", file)); status != 401 {
			t.Errorf("%s, with nobody's key: %d, want 401", file, status)
		}
		if status, body := doorAnswer(t, s.invoke(t, "Enqueue", file, "k-test", made.Key)); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", file, status, body)
		}
	}

	before := len(s.Fake.Calls())
	const none = `{"batchItemFailures":[]}`
	if got := s.invoke(t, "WorkerBg", "sqs-two-envelopes.json"); string(got) != none {
		t.Errorf("the two messages: %s", got)
	}
	if n := len(s.Fake.Calls()); n != before {
		t.Errorf("%d calls of messages whose deadline has passed", n-before)
	}
	now := strconv.FormatInt(time.Now().UnixMilli(), 10)
	if got := s.invoke(t, "WorkerBg", "sqs-two-envelopes.json", "1795953600000", now, "invoice-2026-0001", "again-"); string(got) != none {
		t.Errorf("the two messages, sent now: %s", got)
	}
	if n := len(s.Fake.Calls()); n != before+2 {
		t.Errorf("%d calls of two messages", n-before)
	}
}

// No file of events/ is left out above: those for functions are named for them.
func TestSAM_EventsAreNamedForTheirFunctions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(repository + "/events/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	test, err := os.ReadFile("saminvoke_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := filepath.Base(f)
		if kind, _, _ := strings.Cut(name, "-"); kind == "envelope" || name == "reply.json" {
			continue // what lies on queues
		}
		if !bytes.Contains(test, []byte(`"`+name+`"`)) {
			t.Errorf("%s runs through no function", name)
		}
	}
}
