package front

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func TestNewCertificate_ServesHTTPSToWhoTrustsTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, path, err := NewCertificate(dir)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(pem), "PRIVATE") {
		t.Error("the file holds a key")
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("the file holds no certificate")
	}
	h, err := New(options(), replies(ok+"secret"))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(h)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	for _, url := range []string{srv.URL, strings.Replace(srv.URL, "127.0.0.1", "localhost", 1)} {
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 200 || string(body) != "secret" {
			t.Errorf("%s: got %d %s", url, resp.StatusCode, body)
		}
	}
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}}
	if resp, err := stranger.Get(srv.URL); err == nil {
		_ = resp.Body.Close()
		t.Error("trusted without the file")
	}
}

func TestNewCertificate_NoPlaceForTheFile(t *testing.T) {
	t.Parallel()
	if _, _, err := NewCertificate(t.TempDir() + "/nowhere"); err == nil {
		t.Error("no error")
	}
}
