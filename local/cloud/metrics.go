package cloud

import (
	"bytes"
	"io"

	"github.com/llm-queue/llmq/local/cloud/internal/localonly"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry/prom"
)

// openMetrics shows what the functions tell CloudWatch to Prometheus, summed since the start. What they print is looked at on its
// way to out.
func (c *Cloud) openMetrics(out io.Writer) (io.Writer, error) {
	if out == nil {
		out = io.Discard
	}
	sum := telemetry.NewLasting()
	url, err := c.serve("127.0.0.1:0", localonly.Handler(prom.Handler(sum)), nil)
	c.MetricsURL = url + "/metrics"
	return metered{out, sum}, err
}

// metered passes lines on, and adds up those that are metrics. Its methods may be called at the same time.
type metered struct {
	to  io.Writer
	sum *telemetry.Recorder
}

// Write implements io.Writer, for one line led by its instance's name.
func (m metered) Write(line []byte) (int, error) {
	if i := bytes.Index(line, []byte("] {")); i >= 0 {
		m.sum.ReadEMF(line[i+2:])
	}
	return m.to.Write(line)
}
