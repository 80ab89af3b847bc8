package server

import (
	"net/http"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/quota"
)

type callJSON struct {
	Seq           uint64      `json:"seq"`
	At            time.Time   `json:"at"`
	Wire          string      `json:"wire"`
	Operation     string      `json:"operation"`
	Stream        bool        `json:"stream"`
	Path          string      `json:"path"`
	Model         string      `json:"model"`
	Region        string      `json:"region"`
	KeyHash       string      `json:"key_hash"`
	Status        int         `json:"status"`
	Outcome       Outcome     `json:"outcome"`
	ThrottledBy   quota.Cause `json:"throttled_by"`
	Fail          Failure     `json:"fail"`
	Phase         int         `json:"phase"`
	Repeat        bool        `json:"repeat"`
	InputTokens   int         `json:"input_tokens"`
	OutputTokens  int         `json:"output_tokens"`
	ChargedTokens int64       `json:"charged_tokens"`
	Events        int         `json:"events"`
	FirstByteMs   millis      `json:"first_byte_ms"`
	DurationMs    millis      `json:"duration_ms"`
	RequestBytes  int         `json:"request_bytes"`
	RequestSHA256 string      `json:"request_sha256"`
	BodyBase64    []byte      `json:"body_base64"`
	Headers       http.Header `json:"headers"`
}

func newCallJSON(c Call) callJSON {
	return callJSON{
		Seq: c.Seq, At: c.At.UTC(), Wire: c.Wire, Operation: c.Operation, Stream: c.Stream, Path: c.Path,
		Model: c.Model, Region: c.Region, KeyHash: c.KeyHash,
		Status: c.Status, Outcome: c.Outcome, ThrottledBy: c.ThrottledBy, Fail: c.Fail, Phase: c.Phase, Repeat: c.Repeat,
		InputTokens: c.InputTokens, OutputTokens: c.OutputTokens, ChargedTokens: c.ChargedTokens, Events: c.Events,
		FirstByteMs: newMillis(c.FirstByte), DurationMs: newMillis(c.Duration),
		RequestBytes: c.RequestBytes, RequestSHA256: c.RequestSHA256, BodyBase64: c.Body, Headers: c.Header,
	}
}

type gaugeJSON struct {
	Calls         int     `json:"calls"`
	InFlight      int     `json:"in_flight"`
	Peak          int     `json:"peak"`
	Admitted      int     `json:"admitted"`
	Throttled     int     `json:"throttled"`
	Failed        int     `json:"failed"`
	Good          int     `json:"good"`
	GoodPerSecond float64 `json:"good_per_second"`
	Repeats       int     `json:"repeats"`
	RepeatedKeys  int     `json:"repeated_keys"`
	InputTokens   int64   `json:"input_tokens"`
	OutputTokens  int64   `json:"output_tokens"`
	ChargedTokens int64   `json:"charged_tokens"`
}

// newGaugeJSON adds the goodput over the time that was counted.
func newGaugeJSON(g Gauge, counted time.Duration) gaugeJSON {
	out := gaugeJSON{
		Calls: g.Calls, InFlight: g.InFlight, Peak: g.Peak, Admitted: g.Admitted, Throttled: g.Throttled, Failed: g.Failed, Good: g.Good,
		Repeats: g.Repeats, RepeatedKeys: g.RepeatedKeys,
		InputTokens: g.InputTokens, OutputTokens: g.OutputTokens, ChargedTokens: g.ChargedTokens,
	}
	if counted > 0 {
		out.GoodPerSecond = float64(g.Good) / counted.Seconds()
	}
	return out
}

func gaugesJSON(gauges map[string]Gauge, counted time.Duration) map[string]gaugeJSON {
	out := make(map[string]gaugeJSON, len(gauges))
	for name, g := range gauges {
		out[name] = newGaugeJSON(g, counted)
	}
	return out
}

type statsJSON struct {
	Since   time.Time            `json:"since"`
	All     gaugeJSON            `json:"all"`
	Models  map[string]gaugeJSON `json:"models"`
	Regions map[string]gaugeJSON `json:"regions"`
	Keys    map[string]gaugeJSON `json:"keys"`
}

func newStatsJSON(stats Stats, now time.Time) statsJSON {
	counted := now.Sub(stats.Since)
	return statsJSON{
		Since:   stats.Since.UTC(),
		All:     newGaugeJSON(stats.All, counted),
		Models:  gaugesJSON(stats.Models, counted),
		Regions: gaugesJSON(stats.Regions, counted),
		Keys:    gaugesJSON(stats.Keys, counted),
	}
}

type secondJSON struct {
	At           time.Time `json:"at"`
	Calls        int       `json:"calls"`
	Admitted     int       `json:"admitted"`
	Throttled    int       `json:"throttled"`
	Good         int       `json:"good"`
	Failed       int       `json:"failed"`
	Peak         int       `json:"peak"`
	InputTokens  int64     `json:"input_tokens"`
	OutputTokens int64     `json:"output_tokens"`
	Charge       int64     `json:"charged_tokens"`
}
