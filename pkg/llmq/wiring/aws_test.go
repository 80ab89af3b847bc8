package wiring

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// Who has set AWS_CA_BUNDLE, for a proxy or for the local cloud's door, can run a program that calls models, and its requests to
// AWS trust what the bundle names.
func TestLoadAWS_TrustsTheBundleOfTheEnvironment(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(srv.Close)
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", bundle)
	for _, kind := range []config.Kind{config.KindLocal, config.KindAWS} {
		cfg := config.Default(kind)
		cfg.Region = "us-east-1"
		got, err := loadAWS(t.Context(), cfg)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := got.HTTPClient.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		_ = resp.Body.Close() // it is empty
		got.HTTPClient.(*http.Client).CloseIdleConnections()
	}
}
