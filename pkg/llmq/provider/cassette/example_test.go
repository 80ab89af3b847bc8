package cassette_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq/provider/cassette"
)

// A test's client plays what was recorded once with LLMQ_CASSETTE=record, and calls nobody.
func ExampleNew() {
	tape, err := cassette.New(cassette.Options{Dir: "testdata/cassettes", Mode: cassette.Auto})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: tape.Wrap(http.DefaultTransport)}

	resp, err := client.Post("https://api.example.com/v1/chat/completions", "application/json",
		strings.NewReader(`{"model": "m", "messages": [{"role": "user", "content": "Say hello."}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body), err, tape.Unplayed(), tape.Close())
	// Output: {"choices":[{"message":{"role":"assistant","content":"Hello."}}]} <nil> [] <nil>
}
