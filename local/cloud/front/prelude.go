package front

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
)

// integrationResponse is the content type of a reply with a prelude.
const integrationResponse = "application/vnd.awslambda.http-integration-response"

// prelude is the head of a streamed reply.
type prelude struct {
	StatusCode        int                 `json:"statusCode"`
	Headers           map[string]string   `json:"headers"`
	MultiValueHeaders map[string][]string `json:"multiValueHeaders"`
	Cookies           []string            `json:"cookies"`
}

// readPrelude reads up to and with the eight NUL bytes. It returns the prelude and what was read of the body beyond it.
// The prelude must be within the first 16 KB.
//
// A prelude without a status is refused. aws-lambda-go leaves statusCode out when it is 0, and whether AWS then takes 200
// is nowhere said, so the mistake shall show here. So is an informational one, which could not be the last.
func readPrelude(r io.Reader) (prelude, []byte, error) {
	delimiter := make([]byte, 8)
	buf := make([]byte, 0, 4<<10)
	for {
		if at := bytes.Index(buf, delimiter); at >= 0 && at+len(delimiter) <= maxPrelude {
			p, err := parsePrelude(buf[:at])
			return p, buf[at+len(delimiter):], err
		}
		if len(buf) >= maxPrelude {
			return prelude{}, nil, fmt.Errorf("no end of the prelude within %d bytes", maxPrelude)
		}
		buf = slices.Grow(buf, 4<<10)
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err != nil && n == 0 {
			if errors.Is(err, io.EOF) {
				return prelude{}, nil, errors.New("reply ended within the prelude")
			}
			return prelude{}, nil, fmt.Errorf("read prelude: %w", err)
		}
	}
}

func parsePrelude(text []byte) (prelude, error) {
	var p prelude
	if err := json.Unmarshal(text, &p); err != nil {
		return prelude{}, errors.New("prelude is not the JSON object it should be") // the decoder's error would quote it
	}
	if p.StatusCode < 200 || p.StatusCode > 599 {
		return prelude{}, fmt.Errorf("prelude has status code %d", p.StatusCode)
	}
	return p, nil
}

// writeHeaders merges a function's headers into the response, as API Gateway does: both maps together, a pair that is in
// both once. Headers of the connection are the server's business; some others come under another name.
func writeHeaders(h http.Header, single map[string]string, multi map[string][]string, cookies []string) {
	out := http.Header{}
	for name, values := range multi {
		for _, v := range values {
			out.Add(name, v)
		}
	}
	for name, v := range single {
		if !slices.Contains(out.Values(name), v) {
			out.Add(name, v)
		}
	}
	for _, c := range cookies {
		out.Add("Set-Cookie", c)
	}
	dropHop(out)
	out.Del("Content-Length") // counted anew
	for name, values := range out {
		switch name {
		case "Authorization", "Date", "Host", "Server", "User-Agent", "Www-Authenticate":
			name = "X-Amzn-Remapped-" + name
		}
		h[name] = values
	}
}
