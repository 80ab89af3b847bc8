package otlp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/llm-queue/llmq/pkg/llmq/internal/egress"
)

const (
	// dialWithin may be more than a flush takes: a connection that took longer to make serves the next one.
	dialWithin = time.Second
	// answerBytes is what is read of an answer, so that its connection can be used again.
	answerBytes = 64 << 10
)

// client sends spans to a collector, once: no retry, no redirect, no proxy.
type client struct {
	url  string
	http *http.Client
	idle interface{ CloseIdleConnections() }
}

var _ otlptrace.Client = (*client)(nil)

func newClient(endpoint string) *client {
	dialer := &net.Dialer{Timeout: dialWithin}
	transport := egress.Rest(&http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: dialWithin, ForceAttemptHTTP2: true, MaxIdleConns: 2, MaxIdleConnsPerHost: 2,
	})
	return &client{
		url: strings.TrimRight(endpoint, "/") + "/v1/traces", idle: transport,
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

func (c *client) close() { c.idle.CloseIdleConnections() }

// Start and Stop have nothing to do: connections are made at the first use.
func (c *client) Start(context.Context) error { return nil }
func (c *client) Stop(context.Context) error  { return nil }

// UploadTraces implements [otlptrace.Client]. TracesData is on the wire what the service's ExportTraceServiceRequest is, whose package would
// link all of gRPC.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make a request to the collector: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "llmq")
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("send spans: %w", err)
	}
	defer resp.Body.Close()
	if _, err := io.CopyN(io.Discard, resp.Body, answerBytes); err != nil && err != io.EOF { //nolint:errorlint // CopyN returns it bare
		return fmt.Errorf("read the collector's answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return statusError(resp.StatusCode)
	}
	return nil
}

// statusError is an answer of the collector's that takes nothing.
type statusError int

func (s statusError) Error() string { return fmt.Sprintf("status %d", int(s)) }
