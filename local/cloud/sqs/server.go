package sqs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/llm-queue/llmq/local/cloud/sqs/internal/broker"
)

// maxRequestBytes bounds what is read of a request. It leaves room for a batch that is over SQS's own limit of 1 MiB, and escaped
// at length, to be told BatchRequestTooLong.
const maxRequestBytes = 32 << 20

// billedChunk is how much of the payload is one request on the bill, in bytes.
const billedChunk = 64 << 10

const contentType = "application/x-amz-json-1.0"

// Options configure a Server. The zero value is a server in us-east-1 that logs nothing.
type Options struct {
	// Region is the region in every queue's ARN. Default "us-east-1".
	Region string

	// AccountID is the account in every queue's ARN and URL. Default "000000000000".
	AccountID string

	// MaxInFlight is how many messages of one queue may be in flight, past which ReceiveMessage fails with OverLimit. Default
	// 120,000, as on AWS; a scenario that wants to see the limit lowers it.
	MaxInFlight int

	// NoisyGroups makes the choice between message groups that of AWS's fair queues as they are documented: the oldest message goes
	// first, but a group with 30 messages in flight or more, and over 10 % of all, goes after the others until its backlog is drained
	// or nothing of it was in flight for 5 minutes. Default: the group with the fewest messages in flight goes first, always, which
	// also shows with few consumers. (AWS finds a group noisy also by the time that consumers spend on it; that is not done.)
	NoisyGroups bool

	// MaxQueues is how many queues there may be, past which CreateQueue fails with ServiceUnavailable. Default 10,000. AWS has no such
	// limit; a test that leaks queues should not take the machine with it.
	MaxQueues int

	// MaxBytes is how much memory the messages of all queues may take, in bytes, past which a message sent is refused with
	// ServiceUnavailable. It is an estimate: a message's bytes and 1 KiB for its upkeep. Default 1 GiB. AWS has no such limit.
	MaxBytes int

	// Logger gets one debug record a request: operation, status, error code, duration. Never a body, an attribute or a key.
	// Default: none.
	Logger *slog.Logger
}

// Server is an SQS server. It is safe for concurrent use. Create it with New and end it with Close.
type Server struct {
	broker     *broker.Broker
	account    string
	log        *slog.Logger
	operations map[string]*operation
	faults     *faults
	empty      atomic.Int64 // receives that brought nothing
	grouped    atomic.Int64 // messages that were sent with a group
}

// operation is one operation of the API and the count of its requests.
type operation struct {
	serve    func(*call, []byte) (any, error)
	requests atomic.Int64
	chunks   atomic.Int64 // beyond each request's first
}

// call is what an operation knows of a request besides its parameters.
type call struct {
	ctx      context.Context //nolint:containedctx // a call lives exactly as long as its request
	base     string          // of queue URLs: "http://host:port"
	senderID string
	fate     func() broker.Fate // decides what becomes of the next message
	payload  int                // bytes of the messages sent or received
}

// New returns a server without queues. It listens nowhere: the caller owns the listener and serves the Server on it.
func New(o Options) *Server {
	s := &Server{
		account: cmp.Or(o.AccountID, "000000000000"),
		log:     o.Logger,
		faults:  newFaults(),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.broker = broker.New(broker.Config{
		Region: cmp.Or(o.Region, "us-east-1"), AccountID: s.account,
		MaxInFlight: o.MaxInFlight, NoisyGroups: o.NoisyGroups, MaxQueues: o.MaxQueues, MaxBytes: o.MaxBytes,
	})
	s.operations = s.table()
	return s
}

// Close ends every waiting poll, which then returns no message, every timer, and what a [Fault] holds. It returns when none of their
// goroutines is left. Requests that come later get ServiceUnavailable, which SDKs retry: stop the listener first where that matters.
func (s *Server) Close() {
	s.faults.close()
	s.broker.Close()
}

// Stats is a count of what a server has been asked.
type Stats struct {
	// Requests is the number of requests by operation. Refused ones count too; operations never asked for are left out.
	Requests map[string]int64

	// Billed is the number of requests by operation as AWS bills them: each is one for every 64 KiB, or part of it, of the messages
	// that it sends or receives, and at least one.
	Billed map[string]int64

	// Empty is how many answered receives brought no message; AWS bills them all the same.
	Empty int64

	// Grouped is how many messages were taken that have a MessageGroupId, for which AWS bills a fair queue on top.
	Grouped int64

	// Faults is how many requests and messages were struck by an injected [Fault].
	Faults int64
}

// Stats returns the counts since New.
func (s *Server) Stats() Stats {
	stats := Stats{Requests: map[string]int64{}, Billed: map[string]int64{}, Empty: s.empty.Load(), Grouped: s.grouped.Load(), Faults: s.faults.hits.Load()}
	for name, op := range s.operations {
		if n := op.requests.Load(); n > 0 {
			stats.Requests[name] = n
			stats.Billed[name] = n + op.chunks.Load()
		}
	}
	return stats
}

// ServeHTTP answers one request of the SQS API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	name, out, err := s.serve(w, r)
	if errors.Is(err, errCut) {
		s.log.DebugContext(r.Context(), "sqs request cut by a fault", "operation", name, "duration_ms", time.Since(began).Milliseconds())
		panic(http.ErrAbortHandler) // which is how a handler cuts the connection
	}
	status, code := http.StatusOK, ""
	w.Header().Set("X-Amzn-Requestid", rand.Text())
	if err != nil {
		status, code = writeError(w, err)
	} else if err := writeResult(w, out); err != nil {
		status, code = writeError(w, err)
	}
	if !s.log.Enabled(r.Context(), slog.LevelDebug) {
		return
	}
	s.log.DebugContext(r.Context(), "sqs request",
		"operation", name, "status", status, "error_code", code, "duration_ms", time.Since(began).Milliseconds())
}

// serve runs the operation a request asks for.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) (name string, out any, err error) {
	if r.Method != http.MethodPost {
		return "", nil, fault(methodNotAllowed, "SQS operations are POST requests.")
	}
	sender, err := senderOf(r.Header.Get("Authorization"))
	if err != nil {
		return "", nil, err
	}
	name, isSQS := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	op := s.operations[name]
	if !isSQS || op == nil {
		return "", nil, fault(unknownOperation, "X-Amz-Target names no operation of SQS; this server speaks AWS JSON 1.0 only.")
	}
	op.requests.Add(1)
	if !isContentType(r.Header.Get("Content-Type")) {
		return name, nil, fault(unsupportedMedia, "The content type must be "+contentType+".")
	}
	body, err := readBody(w, r)
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			return name, nil, fault(entityTooLarge, "The request is larger than 32 MiB.")
		}
		return name, nil, fault(serialization, "The request's body ended early.")
	}
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	c := &call{ctx: r.Context(), base: scheme + r.Host, senderID: sender, fate: kept}
	defer func() { op.chunks.Add(int64(max(c.payload-1, 0) / billedChunk)) }()
	if !s.faults.any.Load() {
		out, err = op.serve(c, body)
		return name, out, err
	}
	queue := queueIn(body)
	c.fate = func() broker.Fate { return s.faults.fate(name, queue) }
	loses, err := s.faults.before(r.Context(), name, queue)
	if err != nil {
		return name, nil, err
	}
	out, err = op.serve(c, body)
	if loses {
		return name, nil, errCut
	}
	return name, out, err
}

// isContentType tells whether a Content-Type header names AWS JSON 1.0, with parameters or without.
func isContentType(header string) bool {
	if header == contentType { // as SDKs send it
		return true
	}
	media, _, err := mime.ParseMediaType(header)
	return err == nil && media == contentType
}

// readBody reads all of a request's body, or net/http could not tell that a caller has left a long poll.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	var body bytes.Buffer
	if n := r.ContentLength; n > 0 && n <= maxRequestBytes {
		body.Grow(int(n) + bytes.MinRead) // so much more that the end is seen without growing again
	}
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	return body.Bytes(), err
}

// kept is the fate of every message while there is no fault.
func kept() broker.Fate { return broker.Kept }

// none is the result of an operation that has none.
type none struct{}

// writeResult writes an operation's result; none is an empty body, as on AWS.
func writeResult(w http.ResponseWriter, out any) error {
	w.Header().Set("Content-Type", contentType)
	if _, empty := out.(none); empty {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	body, err := json.Marshal(out)
	if err != nil {
		return fault(internalFailure, "The result could not be encoded.")
	}
	_, _ = w.Write(body) // fails only when the caller has left
	return nil
}

// typed turns a function over an operation's parameters and result into one over bytes.
func typed[In, Out any](f func(*call, *In) (Out, error)) *operation {
	return &operation{serve: func(c *call, body []byte) (any, error) {
		var in In
		if err := json.Unmarshal(body, &in); err != nil {
			// The error is not passed on: it may quote the body.
			return nil, fault(serialization, "The request's body is not the JSON of this operation's parameters.")
		}
		return f(c, &in)
	}}
}

// table is every operation this server knows.
func (s *Server) table() map[string]*operation {
	return map[string]*operation{
		"AddPermission":                typed(s.refusePermissions),
		"CancelMessageMoveTask":        typed(s.cancelMessageMoveTask),
		"ChangeMessageVisibility":      typed(s.changeMessageVisibility),
		"ChangeMessageVisibilityBatch": typed(s.changeMessageVisibilityBatch),
		"CreateQueue":                  typed(s.createQueue),
		"DeleteMessage":                typed(s.deleteMessage),
		"DeleteMessageBatch":           typed(s.deleteMessageBatch),
		"DeleteQueue":                  typed(s.deleteQueue),
		"GetQueueAttributes":           typed(s.getQueueAttributes),
		"GetQueueUrl":                  typed(s.getQueueURL),
		"ListDeadLetterSourceQueues":   typed(s.listDeadLetterSourceQueues),
		"ListMessageMoveTasks":         typed(s.listMessageMoveTasks),
		"ListQueueTags":                typed(s.listQueueTags),
		"ListQueues":                   typed(s.listQueues),
		"PurgeQueue":                   typed(s.purgeQueue),
		"ReceiveMessage":               typed(s.receiveMessage),
		"RemovePermission":             typed(s.refusePermissions),
		"SendMessage":                  typed(s.sendMessage),
		"SendMessageBatch":             typed(s.sendMessageBatch),
		"SetQueueAttributes":           typed(s.setQueueAttributes),
		"StartMessageMoveTask":         typed(s.startMessageMoveTask),
		"TagQueue":                     typed(s.tagQueue),
		"UntagQueue":                   typed(s.untagQueue),
	}
}
