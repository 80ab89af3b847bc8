package lambda

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/llm-queue/llmq/local/cloud/internal/ids"
	"github.com/llm-queue/llmq/local/cloud/internal/localonly"
)

// The Runtime API's headers and trailers.
const (
	headerRequestID    = "Lambda-Runtime-Aws-Request-Id"
	headerDeadline     = "Lambda-Runtime-Deadline-Ms"
	headerARN          = "Lambda-Runtime-Invoked-Function-Arn"
	headerTrace        = "Lambda-Runtime-Trace-Id"
	headerClient       = "Lambda-Runtime-Client-Context"
	headerResponseMode = "Lambda-Runtime-Function-Response-Mode"
	headerErrorType    = "Lambda-Runtime-Function-Error-Type"
	trailerErrorType   = headerErrorType
	trailerErrorBody   = "Lambda-Runtime-Function-Error-Body"
)

// routes is the Runtime API of one instance, and as much of the Extensions API as an extension without events needs.
func (i *instance) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", i.next)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", i.response)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", i.failure)
	mux.HandleFunc("POST /2018-06-01/runtime/init/error", i.initError)
	mux.HandleFunc("POST /2020-01-01/extension/register", i.registerExtension)
	mux.HandleFunc("GET /2020-01-01/extension/event/next", i.extensionNext)
	return mux
}

// guard refuses what can't come from the instance's own process (a browser that was lured to the port), and keeps count of
// running handlers so that the end of an instance can wait for them.
func (i *instance) guard(address string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != address || localonly.FromPage(r) {
			refuse(w, http.StatusForbidden, "Forbidden", "not a runtime")
			return
		}
		i.mu.Lock()
		alive := i.state != StateDead
		if alive {
			i.handlers.Add(1)
		}
		i.mu.Unlock()
		if !alive {
			refuse(w, http.StatusForbidden, "Forbidden", "instance has ended")
			return
		}
		defer i.handlers.Done()
		// A child may be here before the thread that forked it has noted its pid, without which nothing could stop it.
		select {
		case <-i.process().born:
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
}

// next ends the invocation that the runtime has answered, if any, and waits for another one.
func (i *instance) next(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	out := i.out
	i.mu.Unlock()
	for _, p := range out {
		p.drain()
	}
	if !i.becomeReady() {
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "the invocation in progress has not been answered")
		return
	}
	var inv *invocation
	select {
	case inv = <-i.work:
	case <-i.gone:
		return
	case <-r.Context().Done():
		return
	}
	if r.Context().Err() != nil {
		i.work <- inv // nobody reads the reply: keep it for the next request, or for another instance when this one dies
		return
	}
	deadline, ok := i.hand(inv)
	if !ok {
		return // the process has died, and the invocation is with another instance
	}
	if i.fn.takeCrash() {
		i.process().signal(syscall.SIGKILL)
		<-i.gone
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set(headerRequestID, inv.id)
	header.Set(headerARN, i.fn.host.arn(i.fn.cfg.Name))
	header.Set(headerTrace, inv.trace)
	if inv.clientContext != nil {
		header.Set(headerClient, string(inv.clientContext))
	}
	header.Set(headerDeadline, strconv.FormatInt(deadline.UnixMilli(), 10))
	header.Set("Content-Length", strconv.Itoa(len(inv.payload)))
	_, _ = w.Write(inv.payload) // a runtime that is gone is noticed as a dead process
}

// becomeReady moves the instance to where it can take work. It is false when the runtime owes an answer.
func (i *instance) becomeReady() bool {
	i.mu.Lock()
	inv := i.current
	if inv != nil && inv.handed && !inv.answered {
		i.mu.Unlock()
		return false
	}
	over := inv != nil && inv.handed && !i.dying
	switch {
	case i.dying: // it gets no more work; its end settles what it has done
	case i.state == StateStarting:
		i.initEnd.Stop()
		i.state = StateBusy // its first invocation is waiting
		if inv != nil {
			inv.initTook = time.Since(i.started)
		}
	case over:
		i.state, i.current = StateIdle, nil
		i.freeze()
	}
	i.mu.Unlock()
	if over {
		i.fn.release(i) // before the caller hears of it, so that its next call finds the instance idle
		i.settle(inv, platformError(i.fn.cfg.Name, inv.id, codeTruncated, "the response ended before it was complete"))
	}
	return true
}

// hand marks the invocation as the runtime's, starts its clock and returns its deadline; false if it is not this
// instance's any more.
func (i *instance) hand(inv *invocation) (deadline time.Time, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current != inv {
		return time.Time{}, false
	}
	i.logs.reset()
	inv.handed, inv.handedAt = true, time.Now()
	deadline = inv.handedAt.Add(i.fn.cfg.Timeout)
	if i.restarted && i.count == 1 {
		deadline = i.started.Add(i.fn.cfg.Timeout) // the second init is part of its first invocation
	}
	inv.watchdog = time.AfterFunc(time.Until(deadline), func() { i.expired(inv) })
	return deadline, true
}

// answer returns the invocation that id names and marks it as answered; if it can't be answered it refuses the request.
func (i *instance) answer(w http.ResponseWriter, r *http.Request) *invocation {
	i.mu.Lock()
	inv := i.current
	known := inv != nil && inv.handed && inv.id == r.PathValue("id")
	again := known && inv.answered
	if known {
		inv.answered = true
	}
	i.mu.Unlock()
	switch {
	case !known:
		refuse(w, http.StatusBadRequest, "InvalidRequestID", "Invalid request ID")
		return nil
	case again:
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "the invocation has been answered")
		return nil
	}
	return inv
}

// response passes the reply on as it arrives. aws-lambda-go sends every reply chunked and never names a response mode, so
// the way the function was invoked decides alone whether the caller sees chunks or the whole.
func (i *instance) response(w http.ResponseWriter, r *http.Request) {
	switch r.Header.Get(headerResponseMode) {
	case "", "streaming":
	default:
		refuse(w, http.StatusBadRequest, "InvalidResponseMode", "unknown "+headerResponseMode)
		return
	}
	inv := i.answer(w, r)
	if inv == nil {
		return
	}
	i.begin(inv, r.Header.Get("Content-Type"))
	pace := pacer{free: maxFreeStream, rate: inv.rate, stop: i.gone}
	copied, err := pass(inv.replyWriter, io.LimitReader(r.Body, inv.limit+1), inv.limit, pace.wait)
	switch {
	case err != nil:
		// Cut off. If the process died, that is what the caller shall hear; it will, when the instance ends.
		return
	case copied > inv.limit:
		i.conclude(inv, platformError(i.fn.cfg.Name, inv.id, codeResponseTooBig,
			"Response payload size exceeded maximum allowed payload size ("+strconv.FormatInt(inv.limit, 10)+" bytes)."))
		refuse(w, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "Exceeded maximum allowed payload size")
		return
	}
	i.conclude(inv, i.trailed(inv, r.Trailer))
	accept(w)
}

// trailed returns the error that a runtime reports after the body, when it failed while writing it.
func (i *instance) trailed(inv *invocation, trailer http.Header) error {
	errorType := trailer.Get(trailerErrorType)
	if errorType == "" {
		return nil
	}
	body, err := base64.StdEncoding.DecodeString(trailer.Get(trailerErrorBody))
	if err != nil || len(body) == 0 {
		return platformError(i.fn.cfg.Name, inv.id, errorType, "")
	}
	return reported(i.fn.cfg.Name, inv.id, errorType, body)
}

// failure takes a handler's error. The caller hears of it when the runtime asks for more work or exits.
func (i *instance) failure(w http.ResponseWriter, r *http.Request) {
	inv := i.answer(w, r)
	if inv == nil {
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxErrorBody))
	if err != nil {
		return // cut off, as above
	}
	i.conclude(inv, reported(i.fn.cfg.Name, inv.id, r.Header.Get(headerErrorType), body))
	accept(w)
}

func (i *instance) initError(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxErrorBody))
	if err != nil {
		return // cut off: the process is about to be found dead
	}
	i.mu.Lock()
	starting := i.state == StateStarting
	if starting && i.current != nil {
		i.initErr = reported(i.fn.cfg.Name, i.current.id, r.Header.Get(headerErrorType), body)
	}
	i.mu.Unlock()
	if !starting {
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "init is over")
		return
	}
	accept(w)
}

// begin tells the caller that the reply has begun.
func (i *instance) begin(inv *invocation, contentType string) {
	i.mu.Lock()
	first := i.current == inv && !inv.begun
	if first {
		inv.begun = true
	}
	i.mu.Unlock()
	if first {
		inv.head <- beginning{contentType: contentType}
	}
}

// conclude notes that the answer is there, whole or with an error. An error that was there before (the timeout) stands.
func (i *instance) conclude(inv *invocation, failure error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current != inv || inv.failure != nil {
		return
	}
	inv.failure = failure
	inv.complete = failure == nil
}

// registerExtension lets an internal extension register, as lambda.WithEnableSIGTERM does: SIGTERM comes before SIGKILL
// from then on. AWS refuses SHUTDOWN to internal extensions; INVOKE is refused here too, since nobody would be told.
func (i *instance) registerExtension(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Events []string `json:"events"`
	}
	err := json.NewDecoder(io.LimitReader(r.Body, maxErrorBody)).Decode(&asked)
	if err != nil || len(asked.Events) > 0 || r.Header.Get("Lambda-Extension-Name") == "" {
		refuse(w, http.StatusForbidden, "Extension.InvalidEventType", "an extension has a name, and here registers for no event")
		return
	}
	i.mu.Lock()
	starting := i.state == StateStarting
	i.extension = i.extension || starting
	i.mu.Unlock()
	if !starting {
		refuse(w, http.StatusForbidden, "Extension.RegistrationClosed", "init is over")
		return
	}
	w.Header().Set("Lambda-Extension-Identifier", ids.UUID())
	_, _ = io.WriteString(w, `{"functionName":"`+i.fn.cfg.Name+`","functionVersion":"`+version+`","handler":"`+i.fn.cfg.Handler+`"}`)
}

// extensionNext waits for an event, which never comes.
func (i *instance) extensionNext(_ http.ResponseWriter, r *http.Request) {
	select {
	case <-i.gone:
	case <-r.Context().Done():
	}
}

func accept(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"status":"OK"}`)
}

func refuse(w http.ResponseWriter, status int, errorType, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"errorMessage":"`+message+`","errorType":"`+errorType+`"}`)
}
