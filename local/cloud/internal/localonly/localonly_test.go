package localonly

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestHandler_KeepsWebPagesOut(t *testing.T) {
	t.Parallel()
	h := Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for _, tt := range []struct {
		host, origin string
		want         int
	}{
		{"127.0.0.1:4566", "", http.StatusNoContent},
		{"127.0.0.1", "", http.StatusNoContent},
		{"localhost:4566", "", http.StatusNoContent},
		{"[::1]:4566", "", http.StatusNoContent},
		{"evil.example", "", http.StatusForbidden},
		{"127.0.0.1.evil.example:80", "", http.StatusForbidden},
		{"10.0.0.1:4566", "", http.StatusForbidden},
		{"", "", http.StatusForbidden},
		{"127.0.0.1:4566", "http://evil.example", http.StatusForbidden},
		{"127.0.0.1:4566", "null", http.StatusForbidden},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Host = tt.host
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("host %q, origin %q: %d, want %d", tt.host, tt.origin, w.Code, tt.want)
		}
	}
}
