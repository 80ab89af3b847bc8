package lambda

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream/eventstreamapi"
)

// serveStream answers InvokeWithResponseStream: frames of the event stream encoding, one PayloadChunk for each chunk of the
// reply, and one InvokeComplete, which also tells of an error. A function that fails has a status of 200, as on AWS.
func (h *Host) serveStream(w http.ResponseWriter, r *http.Request) {
	req, ok := h.readRequest(w, r)
	if !ok {
		return
	}
	switch kind := r.Header.Get("X-Amz-Invocation-Type"); kind {
	case "", "RequestResponse":
	case "DryRun":
		h.serveDryRun(w, req)
		return
	default:
		writeError(w, &Error{Code: CodeInvalidConfig, Function: req.function, Reason: "Unknown invocation type: " + kind})
		return
	}
	stream, early, err := h.stream(r.Context(), req.function, req.payload, req.opts)
	var failed *FunctionError
	if err != nil && !errors.As(err, &failed) {
		answerError(w, r, err)
		return
	}
	frames := frameWriter{w: w, flush: http.NewResponseController(w).Flush, encoder: eventstream.NewEncoder()}
	id := early.RequestID
	if stream != nil {
		id = stream.RequestID
	}
	w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
	w.Header().Set("X-Amz-Executed-Version", version)
	w.Header().Set("X-Amzn-Requestid", id)
	w.WriteHeader(http.StatusOK)
	log := early.LogTail
	if stream != nil {
		defer func() { _ = stream.Close() }() // the function is not told, and goes on
		if err = frames.copy(stream); errors.Is(err, errCallerGone) {
			return
		}
		_ = errors.As(err, &failed)
		log = stream.logTail()
	}
	frames.complete(failed, log, req.opts.LogTail)
}

// errCallerGone is the end of a caller, not of a stream.
var errCallerGone = errors.New("the caller has gone")

type frameWriter struct {
	w       io.Writer
	flush   func() error
	encoder *eventstream.Encoder
}

// copy writes a frame for each chunk, at once, and returns what ended the stream other than its end.
func (f frameWriter) copy(stream io.Reader) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := stream.Read(buf)
		if n > 0 && f.frame("PayloadChunk", "application/octet-stream", buf[:n]) != nil {
			return errCallerGone
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// complete writes the last frame.
func (f frameWriter) complete(failed *FunctionError, log []byte, wantLog bool) {
	var end struct {
		ErrorCode    string `json:",omitempty"`
		ErrorDetails string `json:",omitempty"`
		LogResult    string `json:",omitempty"`
	}
	if failed != nil {
		end.ErrorCode, end.ErrorDetails = functionErrorHeader, string(failed.Payload)
	}
	if wantLog {
		end.LogResult = base64.StdEncoding.EncodeToString(log)
	}
	body, err := json.Marshal(end)
	if err != nil {
		panic(err) // strings always marshal
	}
	_ = f.frame("InvokeComplete", "application/json", body) // the function has run, whether or not its caller is still there
}

func (f frameWriter) frame(kind, contentType string, payload []byte) error {
	var msg eventstream.Message
	msg.Headers.Set(eventstreamapi.MessageTypeHeader, eventstream.StringValue(eventstreamapi.EventMessageType))
	msg.Headers.Set(eventstreamapi.EventTypeHeader, eventstream.StringValue(kind))
	msg.Headers.Set(eventstreamapi.ContentTypeHeader, eventstream.StringValue(contentType))
	msg.Payload = payload
	if err := f.encoder.Encode(f.w, msg); err != nil {
		return err
	}
	return f.flush()
}
