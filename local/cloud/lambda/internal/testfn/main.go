// Command testfn is the function that the tests of the local cloud run as a real bootstrap. What it does is told by the
// payload, or, for its start, by the variable INIT.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

// order is the payload. Gate is the address of a listener of the test: what is read from it, byte by byte, sets the pace.
type order struct {
	Op     string          `json:"op"`
	Gate   string          `json:"gate"`
	N      int             `json:"n"`
	Text   string          `json:"text"`
	Answer json.RawMessage `json:"answer"`
}

func main() {
	start := os.Getenv("INIT") //nolint:forbidigo // a function's own settings come from nowhere else
	switch start {
	case "exit":
		os.Exit(3)
	case "hang":
		<-time.After(time.Hour) // without cgo the runtime would call select {} a deadlock
	case "error":
		post("init/error", `{"errorType":"Init.Broken","errorMessage":"no settings"}`)
		os.Exit(1)
	case "dropper":
		drop()
	case "second": // the first start fails
		if firstTime(filepath.Join(os.TempDir(), "again")) {
			os.Exit(4)
		}
	case "secondhang", "bothslow": // the first start hangs
		if firstTime(filepath.Join(os.TempDir(), "again")) {
			<-time.After(time.Hour)
		}
		if start == "bothslow" {
			<-time.After(700 * time.Millisecond)
		}
	}
	var options []lambda.Option
	if start == "deaf" { // registers, and does not care about SIGTERM
		options = append(options, lambda.WithEnableSIGTERM(func() { fmt.Println("bye") }))
	}
	if start == "sigterm" {
		options = append(options, lambda.WithEnableSIGTERM(func() {
			fmt.Println("bye")
			os.Exit(0)
		}))
	}
	lambda.StartWithOptions(handle, options...)
}

// firstTime says whether the file is not there, and makes it.
func firstTime(path string) bool {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

// post sends to the Runtime API.
func post(path, body string) {
	resp, err := http.Post(runtimeAPI(path), "application/json", strings.NewReader(body)) //nolint:noctx // a loopback address of the test
	if err == nil {
		_ = resp.Body.Close()
	}
}

func runtimeAPI(path string) string {
	return "http://" + os.Getenv("AWS_LAMBDA_RUNTIME_API") + "/2018-06-01/runtime/" + path //nolint:forbidigo // as above
}

// drop answers one invocation as a runtime does, asks for the next, hangs up and does nothing more.
func drop() {
	resp, err := http.Get(runtimeAPI("invocation/next")) //nolint:noctx // as above
	if err != nil {
		os.Exit(1)
	}
	_ = resp.Body.Close()
	post("invocation/"+resp.Header.Get("Lambda-Runtime-Aws-Request-Id")+"/response", `"dropper"`)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, runtimeAPI("invocation/next"), nil)
	if err != nil {
		os.Exit(1)
	}
	if resp, err := http.DefaultClient.Do(req); err == nil { // as above
		_ = resp.Body.Close()
	}
	<-time.After(time.Hour) // without cgo the runtime would call select {} a deadlock
}

func handle(ctx context.Context, raw json.RawMessage) (any, error) {
	var o order
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("read order: %w", err)
	}
	switch o.Op {
	case "answer":
		return bytes.NewReader(o.Answer), nil
	case "env":
		return os.Environ(), nil
	case "context":
		lc, _ := lambdacontext.FromContext(ctx)
		deadline, _ := ctx.Deadline()
		return map[string]any{
			"client": lc.ClientContext.Custom, "deadline": deadline.UnixMilli(), "trace": ctx.Value("x-amzn-trace-id"), "id": lc.AwsRequestID,
			"arn": lc.InvokedFunctionArn, "name": lambdacontext.FunctionName,
		}, nil
	case "print":
		fmt.Println(o.Text)
		fmt.Fprint(os.Stderr, o.Text+" to stderr")
		return nil, nil
	case "big":
		return bytes.NewReader(bytes.Repeat([]byte{'x'}, o.N)), nil
	case "error":
		return nil, errors.New(o.Text)
	case "panic":
		panic(o.Text)
	case "exit":
		os.Exit(o.N)
	case "child": // leaves a process behind and exits
		cmd := exec.CommandContext(context.WithoutCancel(ctx), "sleep", "600")
		if err := cmd.Start(); err != nil {
			return nil, fmt.Errorf("start child: %w", err)
		}
		return cmd.Process.Pid, nil
	case "tick": // a goroutine outlives the invocation; it sends as long as it runs
		conn, err := net.Dial("tcp", o.Gate) //nolint:noctx // must outlive the deadline
		if err != nil {
			return nil, fmt.Errorf("dial gate: %w", err)
		}
		go func() {
			for range time.Tick(time.Millisecond) {
				if _, err := conn.Write([]byte{'.'}); err != nil {
					return
				}
			}
		}()
		return os.Getpid(), nil
	case "wait": // ends when the gate says so, whatever the deadline
		conn, err := net.Dial("tcp", o.Gate) //nolint:noctx // must outlive the deadline
		if err != nil {
			return nil, fmt.Errorf("dial gate: %w", err)
		}
		defer func() { _ = conn.Close() }()
		_, err = conn.Read(make([]byte, 1))
		return os.Getpid(), err
	case "stream":
		conn, err := net.Dial("tcp", o.Gate) //nolint:noctx // must outlive the deadline
		if err != nil {
			return nil, fmt.Errorf("dial gate: %w", err)
		}
		return &events.APIGatewayProxyStreamingResponse{
			StatusCode: 200, Body: &gated{conn: conn},
			Headers: map[string]string{"Content-Type": "text/event-stream"},
		}, nil
	}
	return raw, nil // echo
}

// gated writes a chunk for each byte "c" it is sent, fails at "x", exits at "q" and ends at anything else.
type gated struct {
	conn net.Conn
	n    int
}

func (g *gated) Read(p []byte) (int, error) {
	var step [1]byte
	if _, err := g.conn.Read(step[:]); err != nil {
		return 0, io.EOF
	}
	switch step[0] {
	case 'c':
		g.n++
		return copy(p, fmt.Sprintf("data: %d\n\n", g.n)), nil
	case 'x':
		return 0, errors.New("upstream broke")
	case 'q':
		os.Exit(9)
	}
	return 0, io.EOF
}

func (g *gated) Close() error { return g.conn.Close() }
