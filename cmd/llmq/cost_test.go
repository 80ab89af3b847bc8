package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/local/beacon"
)

// F6: the local cloud that runs is asked for what it counted, by GET, and by --reset to count anew; it gets no key.
func TestCost_AsksTheLocalCloud(t *testing.T) {
	t.Parallel()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if key := req.Header.Get("Authorization"); key != "" {
			t.Errorf("it is told the key %q", key)
		}
		asked = append(asked, req.Method+" "+req.URL.Path)
		fmt.Fprint(w, `{"counts":{"seconds":100,"calls":2,"api_requests":2},"standing":{"queues":1}}`)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	out, err := beacon.Light(dir, beacon.Cloud{URL: server.URL, Key: "door", AdminURL: server.URL, AdminKey: testKey, CountsURL: server.URL + "/counts"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := out(); err != nil {
			t.Error(err)
		}
	}()
	for _, args := range [][]string{{"cost"}, {"cost", "--reset"}} {
		got := invoke(t, at{env: []string{"XDG_RUNTIME_DIR=" + dir}}, args...)
		var s statement
		if err := json.Unmarshal([]byte(got.out), &s); err != nil || got.code != exitOK {
			t.Fatalf("%v: %+v, %v", args, got, err)
		}
		if s.MillionUSD != 3.5 || s.PricesOf == "" || s.Standing == nil {
			t.Errorf("%v: %+v", args, s)
		}
	}
	if want := "GET /counts, POST /counts/reset"; strings.Join(asked, ", ") != want {
		t.Errorf("asked %v, want %s", asked, want)
	}
}

// What it writes for programs can be read again.
func TestCost_ReadsWhatItWrote(t *testing.T) {
	t.Parallel()
	first := invoke(t, at{}, "cost", "--counts", "testdata/counts.json", "--call-seconds", "10")
	again := invoke(t, at{in: first.out}, "cost", "--counts", "-")
	if first.code != exitOK || first.out != again.out {
		t.Errorf("first %+v\nthen %+v", first, again)
	}
}
