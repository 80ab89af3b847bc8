package eventsource

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llm-queue/llmq/local/cloud/internal/ids"
)

// Prefix is the path of the API, without the slash that some callers put behind it.
const Prefix = "/2015-03-31/event-source-mappings"

const (
	maxBody = 1 << 20 // of a request
	maxPage = 100     // mappings in a list, whatever MaxItems says
)

// ServeHTTP answers Create-, Get-, List-, Update- and DeleteEventSourceMapping of Lambda's REST API below Prefix. It does not
// verify signatures.
func (r *Mappings) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	status, out, err := r.serve(w, req)
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Amzn-Requestid", ids.UUID())
	if err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok {
			e = &Error{Code: CodeService, Message: err.Error()}
		}
		header.Set("X-Amzn-Errortype", string(e.Code))
		status, out = e.Code.status(), e.wire()
	}
	body, err := json.Marshal(out)
	if err != nil {
		panic("event source mapping: " + err.Error()) // numbers and strings marshal
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails only when the caller has left
}

func (r *Mappings) serve(w http.ResponseWriter, req *http.Request) (status int, out any, err error) {
	path, ours := strings.CutPrefix(req.URL.Path, Prefix)
	uuid := strings.Trim(path, "/")
	if !ours || strings.Contains(uuid, "/") {
		return 0, nil, &Error{Code: codeUnknown, Message: "Not an operation on event source mappings."}
	}
	var info Info
	status = http.StatusAccepted
	switch {
	case req.Method == http.MethodGet && uuid == "":
		out, err = r.page(req)
		return http.StatusOK, out, err
	case req.Method == http.MethodPost && uuid == "":
		info, err = r.createFrom(w, req)
	case req.Method == http.MethodGet && uuid != "":
		status = http.StatusOK
		info, err = r.Get(uuid)
	case req.Method == http.MethodPut && uuid != "":
		var c Change
		if c, _, err = readChange(w, req); err == nil {
			info, err = r.Update(req.Context(), uuid, c)
		}
	case req.Method == http.MethodDelete && uuid != "":
		info, err = r.Delete(uuid)
	default:
		err = &Error{Code: codeUnknown, Message: "Not an operation on event source mappings."}
	}
	if err != nil {
		return 0, nil, err
	}
	return status, r.describe(info), nil
}

func (r *Mappings) createFrom(w http.ResponseWriter, req *http.Request) (Info, error) {
	c, queueARN, err := readChange(w, req)
	if err != nil {
		return Info{}, err
	}
	if c.Function == nil {
		return Info{}, &Error{Code: CodeValidation, Message: "1 validation error detected: Value null at 'functionName' failed to satisfy constraint: Member must not be null"}
	}
	enabled := true
	set(&enabled, c.Enabled)
	return r.Create(req.Context(), c.apply(Mapping{QueueARN: queueARN, BatchSize: defaultBatchSize}), enabled)
}

// page lists mappings. The marker is the UUID of the last that the caller has.
func (r *Mappings) page(req *http.Request) (any, error) {
	q := req.URL.Query()
	function := q.Get("FunctionName")
	if function != "" {
		var err error
		if function, err = functionName(function); err != nil {
			return nil, err
		}
	}
	limit := maxPage
	if s := q.Get("MaxItems"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 10_000 {
			return nil, invalid("MaxItems is a number from 1 to 10000.")
		}
		limit = min(n, maxPage)
	}
	list := r.List(function, q.Get("EventSourceArn"))
	if marker := q.Get("Marker"); marker != "" {
		i := slices.IndexFunc(list, func(i Info) bool { return i.UUID == marker })
		if i < 0 {
			return nil, invalid("Invalid marker.")
		}
		list = list[i+1:]
	}
	out := wireList{EventSourceMappings: []wireMapping{}}
	for i, info := range list {
		if i == limit {
			out.NextMarker = list[i-1].UUID
			break
		}
		out.EventSourceMappings = append(out.EventSourceMappings, r.describe(info))
	}
	return out, nil
}

type wireList struct {
	EventSourceMappings []wireMapping
	NextMarker          string `json:",omitempty"`
}

// wireMapping is EventSourceMappingConfiguration as AWS writes it for an SQS queue. LastProcessingResult is not among it:
// AWS writes that for streams only.
type wireMapping struct {
	UUID                           string
	BatchSize                      int
	MaximumBatchingWindowInSeconds int
	EventSourceArn                 string
	FunctionArn                    string
	LastModified                   float64 // seconds since 1970
	State                          State
	StateTransitionReason          string
	FunctionResponseTypes          []string     `json:",omitempty"`
	EventSourceMappingArn          string       `json:",omitempty"`
	ScalingConfig                  *wireScaling `json:",omitempty"`
	MetricsConfig                  *wireMetrics `json:",omitempty"`
}

type wireScaling struct {
	MaximumConcurrency *int `json:",omitempty"`
}

type wireMetrics struct{ Metrics []string }

const (
	reportFailures = "ReportBatchItemFailures"
	eventCount     = "EventCount"
)

func (r *Mappings) describe(i Info) wireMapping {
	m, own := i.Mapping, "arn:aws:lambda:"+r.opts.Region+":"+r.opts.AccountID
	out := wireMapping{
		UUID: i.UUID, BatchSize: m.BatchSize, MaximumBatchingWindowInSeconds: int(m.Window / time.Second), EventSourceArn: m.QueueARN,
		FunctionArn: own + ":function:" + m.Function, EventSourceMappingArn: own + ":event-source-mapping:" + i.UUID,
		LastModified: float64(i.LastModified.UnixMilli()) / 1000, State: i.State, StateTransitionReason: i.Reason,
	}
	if m.ReportBatchItemFailures {
		out.FunctionResponseTypes = []string{reportFailures}
	}
	if m.MaximumConcurrency > 0 {
		out.ScalingConfig = &wireScaling{MaximumConcurrency: &m.MaximumConcurrency}
	}
	if m.EventCount {
		out.MetricsConfig = &wireMetrics{Metrics: []string{eventCount}}
	}
	return out
}

// wireChange is the body of a create or an update.
type wireChange struct {
	FunctionName                   *string
	EventSourceArn                 string
	Enabled                        *bool
	BatchSize                      *int
	MaximumBatchingWindowInSeconds *int
	FunctionResponseTypes          *[]string
	ScalingConfig                  *wireScaling
	MetricsConfig                  *wireMetrics
	FilterCriteria                 *struct{ Filters []json.RawMessage }
}

// readChange reads a create or an update. What is not done here is refused by name, and not left out silently.
func readChange(w http.ResponseWriter, req *http.Request) (c Change, queueARN string, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		return c, "", &Error{Code: codeContent, Message: "The request's body can't be read."}
	}
	var given map[string]json.RawMessage
	var in wireChange
	if len(body) > 0 && (json.Unmarshal(body, &given) != nil || json.Unmarshal(body, &in) != nil) {
		return c, "", &Error{Code: codeContent, Message: "Could not parse request body into json."}
	}
	known := []string{
		"FunctionName", "EventSourceArn", "UUID", "Enabled", "BatchSize", "MaximumBatchingWindowInSeconds",
		"FunctionResponseTypes", "ScalingConfig", "MetricsConfig", "FilterCriteria",
	}
	for name, value := range given {
		if string(value) != "null" && !slices.Contains(known, name) {
			return c, "", invalid(name + " is not supported for SQS queues by this Lambda.")
		}
	}
	if in.FilterCriteria != nil && len(in.FilterCriteria.Filters) > 0 {
		return c, "", invalid("FilterCriteria is not supported by this Lambda: filters would delete messages, and llmq uses none.")
	}
	c = Change{Enabled: in.Enabled, Function: in.FunctionName, BatchSize: in.BatchSize}
	if in.MaximumBatchingWindowInSeconds != nil {
		if err := within(windowName, *in.MaximumBatchingWindowInSeconds, 0, int(maxWindow/time.Second)); err != nil {
			return c, "", err // before the multiplication
		}
		c.Window = new(time.Duration(*in.MaximumBatchingWindowInSeconds) * time.Second)
	}
	if in.ScalingConfig != nil {
		c.MaximumConcurrency = new(0)
		if n := in.ScalingConfig.MaximumConcurrency; n != nil {
			if err := within(boundName, *n, minConcurrency, maxConcurrency); err != nil {
				return c, "", err // also 0, which is "no bound" to Change alone
			}
			c.MaximumConcurrency = n
		}
	}
	if c.ReportBatchItemFailures, err = oneOf("functionResponseTypes", in.FunctionResponseTypes, reportFailures); err != nil {
		return c, "", err
	}
	if in.MetricsConfig != nil {
		c.EventCount, err = oneOf("metricsConfig.metrics", &in.MetricsConfig.Metrics, eventCount)
	}
	return c, in.EventSourceArn, err
}

// oneOf reads a list that holds one word or nothing; nil when there is no list.
func oneOf(name string, list *[]string, word string) (*bool, error) {
	if list == nil {
		return nil, nil
	}
	for _, s := range *list {
		if s != word {
			return nil, &Error{Code: CodeValidation, Message: fmt.Sprintf("1 validation error detected: Value '[%s]' at '%s' failed to satisfy constraint: "+
				"Member must satisfy constraint: [Member must satisfy enum value set: [%s]]", s, name, word)}
		}
	}
	return new(len(*list) > 0), nil
}

// wire is the body of an error. AWS does not spell its key alike in all.
func (e *Error) wire() map[string]string {
	key := "message"
	if e.Code == CodeNotFound || e.Code == CodeInUse || e.Code == CodeService {
		key = "Message"
	}
	kind := "User"
	if e.Code == CodeService {
		kind = "Service"
	}
	return map[string]string{"Type": kind, key: e.Message}
}
