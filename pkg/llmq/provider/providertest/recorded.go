package providertest

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/internal/egress"
)

// Recorded reads a reply of testdata: a line that names its source, then the HTTP
// message.
func Recorded(t *testing.T, path string) egress.Reply {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	source, message, _ := bytes.Cut(data, []byte("\n"))
	if !bytes.HasPrefix(source, []byte("# Source: ")) {
		t.Fatalf("%s does not name its source", path)
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(message)), nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	_ = resp.Body.Close()
	return egress.Reply{Status: resp.StatusCode, Header: resp.Header, Body: body}
}
