package config

// Traces says whether and where calls are traced.
type Traces struct {
	Endpoint    string // URL of an OTLP collector, to which /v1/traces is joined; "" traces nothing
	SampleRatio Share  // of traces that begin here; default 1
}

// traceRows is what is traced.
func traceRows() []setting {
	return []setting{
		{
			path: "traces.endpoint_url", env: "LLMQ_TRACES_ENDPOINT_URL", defNote: "nothing is traced",
			doc: "where spans are sent as OTLP in protobuf over HTTP: a collector's URL without /v1/traces. On aws https, or http to the function's own extension on localhost", at: func(s *scope) any { return &s.cfg.Traces.Endpoint },
		},
		{
			path: "traces.sample_ratio", env: "LLMQ_TRACES_SAMPLE_RATIO", form: formShare, def: "1", low: 0, high: 1, why: "it is a part of all traces",
			doc: "traces that are recorded, of those that begin at llmq or whose caller is a stranger to it. Each process decides alike by the trace's id; what a producer or a Go program records is always recorded", at: func(s *scope) any { return &s.cfg.Traces.SampleRatio },
		},
	}
}

// traces checks where spans go.
func (c *checker) traces() {
	const path = "traces.endpoint_url"
	raw := c.cfg.Traces.Endpoint
	if raw == "" || !c.ok(path) {
		return
	}
	u, problem := parseURL(raw)
	switch {
	case problem != "":
		c.fault(path, "%s", problem)
	case c.aws() && u.Scheme != "https" && !isLoopback(u.Hostname()):
		c.fault(path, "must be https on aws, but to an extension on localhost")
	}
}
