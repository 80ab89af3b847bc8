package cloud

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/llm-queue/llmq/local/cloud/internal/localonly"
	"github.com/llm-queue/llmq/pkg/llmq/awscost"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry/prom"
)

// openMetrics shows what the functions tell CloudWatch to Prometheus, summed since the start, and what AWS would bill to llmq cost,
// counted from now.
func (c *Cloud) openMetrics(ctx context.Context) error {
	b := &bills{cloud: c}
	var err error
	if b.from, err = c.Tally(ctx); err != nil {
		return err
	}
	m := http.NewServeMux()
	m.Handle("GET /metrics", prom.Handler(c.meters.printed.sum))
	m.HandleFunc("GET /counts", b.show)
	m.HandleFunc("POST /counts/reset", b.reset)
	url, err := c.serve("127.0.0.1:0", localonly.Handler(m), nil)
	c.MetricsURL, c.CountsURL = url+"/metrics", url+"/counts"
	return err
}

// bills answers with what would be billed since a moment, as an [awscost.Reading].
type bills struct {
	cloud *Cloud

	mu   sync.Mutex // guards from
	from Tally
}

func (b *bills) show(w http.ResponseWriter, r *http.Request) { b.answer(w, r, false) }

// reset answers too, and counts anew from then on.
func (b *bills) reset(w http.ResponseWriter, r *http.Request) { b.answer(w, r, true) }

func (b *bills) answer(w http.ResponseWriter, r *http.Request, anew bool) {
	now, err := b.cloud.Tally(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	b.mu.Lock()
	from := b.from
	if anew {
		b.from = now
	}
	b.mu.Unlock()
	standing := awscost.Of(b.cloud.Config)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(awscost.Reading{Counts: now.Since(from), Standing: &standing}) // fails only when the caller has left
}
