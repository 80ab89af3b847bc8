package server

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// millis is a duration on the admin wire.
type millis float64

func (m millis) duration() (time.Duration, error) {
	const most = millis(maxDelay / time.Millisecond)
	if m < 0 || m > most { // JSON has no NaN
		return 0, fmt.Errorf("%v ms: want 0 to %v", float64(m), float64(most))
	}
	return time.Duration(float64(m) * float64(time.Millisecond)), nil
}

func newMillis(d time.Duration) millis { return millis(float64(d) / float64(time.Millisecond)) }

type matchJSON struct {
	Model  string `json:"model"`
	Region string `json:"region"`
}

func (m matchJSON) match() Match { return Match(m) }

type latencyJSON struct {
	Distribution Distribution `json:"distribution"`
	MeanMs       millis       `json:"mean_ms"`
	DeviationMs  millis       `json:"deviation_ms"`
	MinMs        millis       `json:"min_ms"`
	MaxMs        millis       `json:"max_ms"`
	Seed         uint64       `json:"seed"`
}

func (in latencyJSON) latency() (Latency, error) {
	out := Latency{Distribution: in.Distribution, Seed: in.Seed}
	var faults []error
	for _, field := range []struct {
		name string
		from millis
		to   *time.Duration
	}{
		{"mean_ms", in.MeanMs, &out.Mean},
		{"deviation_ms", in.DeviationMs, &out.Deviation},
		{"min_ms", in.MinMs, &out.Min},
		{"max_ms", in.MaxMs, &out.Max},
	} {
		d, err := field.from.duration()
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", field.name, err))
		}
		*field.to = d
	}
	return out, errors.Join(faults...)
}

type replyJSON struct {
	Status     int               `json:"status"`
	Code       string            `json:"code"`
	Message    string            `json:"message"`
	Headers    map[string]string `json:"headers"`
	Body       *string           `json:"body"`
	BodyBase64 *[]byte           `json:"body_base64"`
	DelayMs    millis            `json:"delay_ms"`
	Hang       bool              `json:"hang"`
	Reset      bool              `json:"reset"`
	Times      int               `json:"times"`
}

func (in replyJSON) reply() (Reply, error) {
	delay, err := in.DelayMs.duration()
	if err != nil {
		return Reply{}, fmt.Errorf("delay_ms: %w", err)
	}
	out := Reply{
		Status: in.Status, Code: in.Code, Message: in.Message,
		Delay: delay, Hang: in.Hang, Reset: in.Reset, Times: in.Times,
	}
	switch {
	case in.Body != nil && in.BodyBase64 != nil:
		return Reply{}, errors.New("body and body_base64: want one of them")
	case in.Body != nil:
		out.Body = []byte(*in.Body)
	case in.BodyBase64 != nil:
		out.Body = *in.BodyBase64
	}
	if len(in.Headers) > 0 {
		out.Header = http.Header{}
		for name, value := range in.Headers {
			out.Header.Set(name, value)
		}
	}
	return out, nil
}

type callJSON struct {
	Seq           uint64      `json:"seq"`
	At            time.Time   `json:"at"`
	Wire          string      `json:"wire"`
	Operation     string      `json:"operation"`
	Path          string      `json:"path"`
	Model         string      `json:"model"`
	Region        string      `json:"region"`
	KeyHash       string      `json:"key_hash"`
	Status        int         `json:"status"`
	Outcome       Outcome     `json:"outcome"`
	DurationMs    millis      `json:"duration_ms"`
	RequestBytes  int         `json:"request_bytes"`
	RequestSHA256 string      `json:"request_sha256"`
	BodyBase64    []byte      `json:"body_base64"`
	Headers       http.Header `json:"headers"`
}

func newCallJSON(c Call) callJSON {
	return callJSON{
		Seq: c.Seq, At: c.At.UTC(), Wire: c.Wire, Operation: c.Operation, Path: c.Path,
		Model: c.Model, Region: c.Region, KeyHash: c.KeyHash,
		Status: c.Status, Outcome: c.Outcome, DurationMs: newMillis(c.Duration),
		RequestBytes: c.RequestBytes, RequestSHA256: c.RequestSHA256, BodyBase64: c.Body, Headers: c.Header,
	}
}

type gaugeJSON struct {
	Calls    int `json:"calls"`
	InFlight int `json:"in_flight"`
	Peak     int `json:"peak"`
}

func gaugesJSON(gauges map[string]Gauge) map[string]gaugeJSON {
	out := make(map[string]gaugeJSON, len(gauges))
	for name, g := range gauges {
		out[name] = gaugeJSON(g)
	}
	return out
}

type statsJSON struct {
	All     gaugeJSON            `json:"all"`
	Models  map[string]gaugeJSON `json:"models"`
	Regions map[string]gaugeJSON `json:"regions"`
	Keys    map[string]gaugeJSON `json:"keys"`
}
