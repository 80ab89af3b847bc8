package sqs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// BenchmarkReceiveDelete tells whether the queue itself would ever be what a scenario waits for. One operation is 20,000 messages of
// 512 bytes through receive(10) and delete(10), 8 consumers at once, asking for the attributes that the event source asks for.
//
// bare-msg/s is the rate of the least that could answer: a slice, a map of what is in flight and a mutex, behind the same HTTP, the
// same JSON and the checksums the protocol asks for. It has no visibility timeouts, no delays, no groups, no retention, no waiting
// polls, no strictness, and its ids are its handles. sqs-msg/s is the embedded server's rate. The two take turns of 1,000 messages, so that whatever else the
// machine does strikes both, and all figures are medians over turns; sqs/bare is that of the ratio, and sqs/bare-cpu that of the ratio
// of messages for each second of CPU time, client and all, which a busy machine disturbs less. Over sockets is how the product reaches
// it. In process there is no socket, so the ratio is harder to keep.
func BenchmarkReceiveDelete(b *testing.B) {
	for name, reach := range map[string]func(testing.TB, http.Handler) *wire{"sockets": overSockets, "in_process": inProcessWire} {
		b.Run(name, func(b *testing.B) {
			server := New(Options{})
			b.Cleanup(server.Close)
			embedded, bare := reach(b, server), reach(b, &bareStore{inFlight: map[string]bareMessage{}})
			embedded.must(b, "CreateQueue", `{"QueueName":"calls"}`)
			var ours, least, ratios, cpuRatios []float64
			for b.Loop() {
				bare.fill(b)
				embedded.fill(b)
				for turn := range benchMessages / turnMessages {
					var l, o, lCPU, oCPU float64
					if turn%2 == 0 { // in turn first, as each leaves its garbage to the next
						l, lCPU = bare.rate(b)
					}
					o, oCPU = embedded.rate(b)
					if turn%2 == 1 {
						l, lCPU = bare.rate(b)
					}
					least, ours, ratios = append(least, l), append(ours, o), append(ratios, o/l)
					if lCPU > 0 && oCPU > 0 {
						cpuRatios = append(cpuRatios, oCPU/lCPU)
					}
				}
			}
			b.ReportMetric(median(least), "bare-msg/s")
			b.ReportMetric(median(ours), "sqs-msg/s")
			b.ReportMetric(median(ratios), "sqs/bare")
			if len(cpuRatios) > 0 {
				b.ReportMetric(median(cpuRatios), "sqs/bare-cpu")
			}
		})
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// bareStore is a queue with nothing of a queue but that what is deleted is gone. It speaks just enough of the protocol for rate.
type bareStore struct {
	mu       sync.Mutex
	ready    []bareMessage
	inFlight map[string]bareMessage
	last     int
}

type bareMessage struct {
	id, body string
	digest   string
	sent     int64
	receives int
}

func (s *bareStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var out any
	switch r.Header.Get("X-Amz-Target") {
	case "AmazonSQS.SendMessageBatch":
		out, err = bareCall(body, s.send)
	case "AmazonSQS.ReceiveMessage":
		out, err = bareCall(body, s.receive)
	case "AmazonSQS.DeleteMessageBatch":
		out, err = bareCall(body, s.remove)
	}
	if err == nil {
		err = writeResult(w, out)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func bareCall[In any](body []byte, f func(*In) any) (any, error) {
	var in In
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	return f(&in), nil
}

func (s *bareStore) send(in *sendMessageBatchInput) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	result := sendMessageBatchResult{Successful: []sentEntry{}}
	for _, e := range in.Entries {
		s.last++
		m := bareMessage{id: fmt.Sprintf("00000000-0000-4000-8000-%012d", s.last), body: e.MessageBody, digest: bodyDigest(e.MessageBody), sent: time.Now().UnixMilli()}
		s.ready = append(s.ready, m)
		result.Successful = append(result.Successful, sentEntry{e.identified, receipt{MessageID: m.id, BodyDigest: m.digest}})
	}
	return result
}

func (s *bareStore) receive(in *receiveMessageInput) any {
	s.mu.Lock()
	n := min(len(s.ready), *in.MaxNumberOfMessages)
	taken := s.ready[:n]
	s.ready = s.ready[n:]
	for i := range taken {
		taken[i].receives++
		s.inFlight[taken[i].id] = taken[i]
	}
	s.mu.Unlock()
	var result receiveMessageResult
	now := strconv.FormatInt(time.Now().UnixMilli(), 10)
	for _, m := range taken {
		result.Messages = append(result.Messages, received{
			MessageID: m.id, ReceiptHandle: m.id, BodyDigest: m.digest, Body: m.body,
			Attributes: systemAttributes{
				SenderID: "bare", SentAt: strconv.FormatInt(m.sent, 10), Receives: strconv.Itoa(m.receives), FirstReceivedAt: now,
			},
		})
	}
	return result
}

func (s *bareStore) remove(in *deleteMessageBatchInput) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	result := batchResult{Successful: []identified{}}
	for _, e := range in.Entries {
		delete(s.inFlight, *e.ReceiptHandle)
		result.add(e.ID, nil)
	}
	return result
}

// wire is a client of the bare protocol: the SDK takes several times longer than any server here, and would hide the difference.
type wire struct {
	client *http.Client
	url    string
}

func overSockets(t testing.TB, h http.Handler) *wire {
	listener := httptest.NewServer(h)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = consumers
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		listener.Close()
	})
	return &wire{&http.Client{Transport: transport}, listener.URL}
}

func inProcessWire(_ testing.TB, h http.Handler) *wire {
	return &wire{&http.Client{Transport: inProcess{h}}, "http://sqs.test"}
}

func (c *wire) ask(ctx context.Context, operation string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIDBENCH/20261129/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=00")
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("X-Amz-Target", "AmazonSQS."+operation)
	response, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", operation, response.StatusCode, answer)
	}
	return answer, err
}

func (c *wire) must(t testing.TB, operation, body string) {
	t.Helper()
	if _, err := c.ask(t.Context(), operation, []byte(body)); err != nil {
		t.Fatal(err)
	}
}

const (
	consumers     = 8
	benchMessages = 20_000
	turnMessages  = 1_000
)

const (
	benchQueue   = `{"QueueUrl":"http://sqs.test/000000000000/calls",`
	benchReceive = benchQueue + `"MaxNumberOfMessages":10,"MessageSystemAttributeNames":["All"],"MessageAttributeNames":["All"]}`
)

// fill sends a run's messages.
func (c *wire) fill(t testing.TB) {
	t.Helper()
	entries := make([]string, 10)
	for i := range entries {
		entries[i] = fmt.Sprintf(`{"Id":"%d","MessageBody":%q}`, i, strings.Repeat("x", 512))
	}
	batch := benchQueue + `"Entries":[` + strings.Join(entries, ",") + `]}`
	for range benchMessages / len(entries) {
		c.must(t, "SendMessageBatch", batch)
	}
}

// rate receives and deletes a turn's messages, and returns messages a second, and messages for a second of CPU time (0 where that is
// not told).
func (c *wire) rate(t testing.TB) (wall, cpu float64) {
	t.Helper()
	var (
		wg   sync.WaitGroup
		left atomic.Int64
		gone atomic.Int64
	)
	left.Store(turnMessages)
	began, used := time.Now(), cpuTime()
	for range consumers {
		wg.Go(func() {
			for left.Add(-10) >= 0 {
				n, err := c.consume(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				gone.Add(int64(n))
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	used = cpuTime() - used
	if gone.Load() != turnMessages {
		t.Errorf("%d messages came, want %d", gone.Load(), turnMessages)
	}
	if used > 0 {
		cpu = turnMessages / used.Seconds()
	}
	return turnMessages / took.Seconds(), cpu
}

// consume receives and deletes up to ten messages.
func (c *wire) consume(ctx context.Context) (int, error) {
	answer, err := c.ask(ctx, "ReceiveMessage", []byte(benchReceive))
	if err != nil {
		return 0, err
	}
	var got receiveMessageResult
	if err := json.Unmarshal(answer, &got); err != nil || len(got.Messages) == 0 {
		return 0, err
	}
	body := []byte(benchQueue + `"Entries":[`)
	for i, m := range got.Messages {
		if i > 0 {
			body = append(body, ',')
		}
		body = fmt.Appendf(body, `{"Id":"%d","ReceiptHandle":"%s"}`, i, m.ReceiptHandle)
	}
	_, err = c.ask(ctx, "DeleteMessageBatch", append(body, "]}"...))
	return len(got.Messages), err
}
