package lambda

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awslambda "github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
)

// client returns AWS's own client of a host's API.
func client(t *testing.T, h *Host) *awslambda.Client {
	t.Helper()
	srv := httptest.NewServer(h.API())
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		srv.Close()
	})
	return awslambda.New(awslambda.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(srv.URL), Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", ""), HTTPClient: &http.Client{Transport: transport},
	})
}

func TestAPI_InvokeByNameAndARN(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	c := client(t, h)
	const arn = "arn:aws:lambda:us-east-1:000000000000:function:fn"
	for _, name := range []string{"fn", arn, arn + ":$LATEST", "000000000000:function:fn", "fn:$LATEST"} {
		out, err := c.Invoke(t.Context(), &awslambda.InvokeInput{FunctionName: aws.String(name), Payload: []byte(`{"op":"echo","n":7}`)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if out.StatusCode != 200 || aws.ToString(out.ExecutedVersion) != "$LATEST" || out.FunctionError != nil || string(out.Payload) != `{"op":"echo","n":7}` {
			t.Errorf("%s: got %+v %s", name, out, out.Payload)
		}
	}
}

func TestAPI_FunctionErrorAndLogTail(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	c := client(t, h)
	tests := []struct {
		name, payload, wantError string
		wantLog                  []string
	}{
		{"success", `{"op":"print","text":"hello"}`, "", []string{"START RequestId: ", " Version: $LATEST\n", "hello\n", "hello to stderr", "END RequestId: ", "Init Duration: "}},
		{"handler error", `{"op":"error","text":"no"}`, "Unhandled", []string{`"errorMessage":"no"`, "Status: error\tError Type: errorString"}},
		{"exit", `{"op":"exit","n":3}`, "Unhandled", []string{"Status: error\tError Type: Runtime.ExitError"}},
	}
	for _, tt := range tests {
		out, err := c.Invoke(t.Context(), &awslambda.InvokeInput{FunctionName: aws.String("fn"), Payload: []byte(tt.payload), LogType: types.LogTypeTail})
		if err != nil {
			t.Fatal(err)
		}
		log, err := base64.StdEncoding.DecodeString(aws.ToString(out.LogResult))
		if err != nil || aws.ToString(out.FunctionError) != tt.wantError {
			t.Errorf("%s: %q, %v", tt.name, aws.ToString(out.FunctionError), err)
		}
		for _, want := range tt.wantLog {
			if !strings.Contains(string(log), want) {
				t.Errorf("%s: no %q in the log:\n%s", tt.name, want, log)
			}
		}
		if strings.Contains(string(log), "Max Memory Used: 0 MB") {
			t.Errorf("%s: no memory in the log:\n%s", tt.name, log)
		}
	}
}

// The tail is 4 KB of this invocation: what was printed last, and nothing of the one before.
func TestAPI_LogTailIsTheLastFourKilobytes(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	for _, text := range []string{strings.Repeat("first ", 2000), strings.Repeat("second ", 2000), "third"} {
		res, err := h.Invoke(t.Context(), "fn", order(t, map[string]any{"op": "print", "text": text}), InvokeOptions{LogTail: true})
		if err != nil {
			t.Fatal(err)
		}
		word := strings.Fields(text)[0]
		other := strings.Contains(string(res.LogTail), "first") && word != "first" || strings.Contains(string(res.LogTail), "second") && word != "second"
		if n := len(res.LogTail); n > tailSize || word != "third" && n != tailSize || other || !strings.Contains(string(res.LogTail), word) {
			t.Errorf("%s: %d bytes, words of another invocation: %v", word, n, other)
		}
	}
}

func TestAPI_DryRunRunsNothing(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	c := client(t, h)
	out, err := c.Invoke(t.Context(), &awslambda.InvokeInput{FunctionName: aws.String("fn"), InvocationType: types.InvocationTypeDryRun})
	if err != nil || out.StatusCode != 204 {
		t.Errorf("got %+v, %v", out, err)
	}
	if s := h.Stats("fn"); s.ColdStarts != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestAPI_EventIsAcceptedAndRunsLater(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	c := client(t, h)
	g := newGate(t)
	out, err := c.Invoke(t.Context(), &awslambda.InvokeInput{
		FunctionName: aws.String("fn"), InvocationType: types.InvocationTypeEvent, Payload: order(t, map[string]any{"op": "wait", "gate": g.addr()}),
	})
	if err != nil || out.StatusCode != 202 || len(out.Payload) != 0 {
		t.Errorf("got %+v, %v", out, err)
	}
	send(t, g.accept(), "c")
	eventually(t, "it has ended", func() bool { s := h.Stats("fn"); return s.Invocations == 1 && s.InFlight == 0 })
}

func TestAPI_TypedErrors(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	c := client(t, h)
	invoke := func(name, payload string, kind types.InvocationType) error {
		_, err := c.Invoke(t.Context(), &awslambda.InvokeInput{FunctionName: aws.String(name), Payload: []byte(payload), InvocationType: kind})
		return err
	}
	const sync, event = types.InvocationTypeRequestResponse, types.InvocationTypeEvent
	big := `"` + strings.Repeat("a", MaxPayload) + `"`
	var (
		notFound *types.ResourceNotFoundException
		content  *types.InvalidRequestContentException
		tooLarge *types.RequestTooLargeException
		invalid  *types.InvalidParameterValueException
	)
	if err := invoke("nobody", "{}", sync); !errors.As(err, &notFound) || !strings.Contains(notFound.ErrorMessage(), "Function not found: arn:aws:lambda:us-east-1:000000000000:function:nobody") {
		t.Errorf("unknown function: %v", err)
	}
	if err := invoke("fn:1", "{}", sync); !errors.As(err, &notFound) {
		t.Errorf("unknown version: %v", err)
	}
	if err := invoke("arn:aws:lambda:eu-west-1:000000000000:function:fn", "{}", sync); !errors.As(err, &notFound) {
		t.Errorf("another region: %v", err)
	}
	if err := invoke("fn", `{"a"`, sync); !errors.As(err, &content) {
		t.Errorf("not JSON: %v", err)
	}
	if err := invoke("fn", `{"a"`, event); !errors.As(err, &content) {
		t.Errorf("event that is not JSON: %v", err)
	}
	if err := invoke("fn", big, sync); !errors.As(err, &tooLarge) || !strings.Contains(tooLarge.ErrorMessage(), "6291456") {
		t.Errorf("too large: %v", err)
	}
	if err := invoke("fn", big[:MaxAsyncPayload]+`"`, event); !errors.As(err, &tooLarge) || !strings.Contains(tooLarge.ErrorMessage(), "1048577 byte payload is too large for the Event invocation type (limit 1048576 bytes)") {
		t.Errorf("event too large: %v", err)
	}
	if err := invoke("fn", "{}", "Other"); !errors.As(err, &invalid) {
		t.Errorf("unknown type: %v", err)
	}
}

func TestAPI_ThrottleSaysWhichLimit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		edit func(*Options, *FunctionConfig)
		want types.ThrottleReason
	}{
		{"reserved", nil, types.ThrottleReasonReservedFunctionConcurrentInvocationLimitExceeded},
		{"account", func(o *Options, c *FunctionConfig) { o.AccountConcurrency, c.Concurrency = 1, 0 }, types.ThrottleReasonConcurrentInvocationLimitExceeded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := setup(t, tt.edit)
			c := client(t, h)
			g := newGate(t)
			running := make(chan Result, 1)
			go func() { running <- invoke(t, h, map[string]any{"op": "wait", "gate": g.addr()}) }()
			conn := g.accept()
			_, err := c.Invoke(t.Context(), &awslambda.InvokeInput{FunctionName: aws.String("fn")})
			var throttle *types.TooManyRequestsException
			if !errors.As(err, &throttle) || throttle.Reason != tt.want || throttle.ErrorMessage() != "Rate Exceeded." {
				t.Errorf("got %v", err)
			}
			send(t, conn, "c")
			<-running
		})
	}
}

func TestAPI_Concurrency(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	c := client(t, h)
	name := aws.String("fn")
	reserved := func() *int32 {
		out, err := c.GetFunctionConcurrency(t.Context(), &awslambda.GetFunctionConcurrencyInput{FunctionName: name})
		if err != nil {
			t.Fatal(err)
		}
		return out.ReservedConcurrentExecutions
	}
	if got := reserved(); aws.ToInt32(got) != 1 {
		t.Errorf("reserved %v, want what Create said", got)
	}
	out, err := c.PutFunctionConcurrency(t.Context(), &awslambda.PutFunctionConcurrencyInput{FunctionName: name, ReservedConcurrentExecutions: aws.Int32(900)})
	if err != nil || aws.ToInt32(out.ReservedConcurrentExecutions) != 900 || aws.ToInt32(reserved()) != 900 {
		t.Errorf("got %+v, %v", out, err)
	}
	var invalid *types.InvalidParameterValueException
	_, err = c.PutFunctionConcurrency(t.Context(), &awslambda.PutFunctionConcurrencyInput{FunctionName: name, ReservedConcurrentExecutions: aws.Int32(901)})
	if !errors.As(err, &invalid) {
		t.Errorf("901 of 1000: %v", err)
	}
	if _, err := c.PutFunctionConcurrency(t.Context(), &awslambda.PutFunctionConcurrencyInput{FunctionName: name, ReservedConcurrentExecutions: aws.Int32(0)}); err != nil {
		t.Error(err)
	}
	var throttle *types.TooManyRequestsException
	if _, err := c.Invoke(t.Context(), &awslambda.InvokeInput{FunctionName: name}); !errors.As(err, &throttle) {
		t.Errorf("with 0 reserved: %v", err)
	}
	if _, err := c.DeleteFunctionConcurrency(t.Context(), &awslambda.DeleteFunctionConcurrencyInput{FunctionName: name}); err != nil || reserved() != nil {
		t.Errorf("after delete: %v, %v", reserved(), err)
	}
	if _, err := c.Invoke(t.Context(), &awslambda.InvokeInput{FunctionName: name}); err != nil {
		t.Errorf("after delete: %v", err)
	}
}

func TestAPI_Configuration(t *testing.T) {
	t.Parallel()
	h := setup(t, func(_ *Options, c *FunctionConfig) { c.Env = []string{"SECRET_KEY=hush"} })
	out, err := client(t, h).GetFunctionConfiguration(t.Context(), &awslambda.GetFunctionConfigurationInput{FunctionName: aws.String("fn")})
	if err != nil {
		t.Fatal(err)
	}
	if aws.ToInt32(out.Timeout) != 10 || aws.ToInt32(out.MemorySize) != 128 || out.State != types.StateActive ||
		aws.ToString(out.FunctionArn) != "arn:aws:lambda:us-east-1:000000000000:function:fn" || out.Environment != nil {
		t.Errorf("got %+v", out)
	}
}

func TestAPI_ClientContextReachesTheFunction(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	c := client(t, h)
	out, err := c.Invoke(t.Context(), &awslambda.InvokeInput{
		FunctionName: aws.String("fn"), Payload: []byte(`{"op":"context"}`),
		ClientContext: aws.String(base64.StdEncoding.EncodeToString([]byte(`{"custom":{"who":"me"}}`))),
	})
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Client map[string]string }
	if err := json.Unmarshal(out.Payload, &got); err != nil || got.Client["who"] != "me" {
		t.Errorf("got %s, %v", out.Payload, err)
	}
	_, err = c.Invoke(t.Context(), &awslambda.InvokeInput{FunctionName: aws.String("fn"), ClientContext: aws.String("%%%")})
	var content *types.InvalidRequestContentException
	if !errors.As(err, &content) {
		t.Errorf("bad context: %v", err)
	}
}

func TestAPI_StreamChunkByChunk(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	c := client(t, h)
	g := newGate(t)
	conns := make(chan io.Writer, 1)
	go func() { conns <- g.accept() }()
	out, err := c.InvokeWithResponseStream(t.Context(), &awslambda.InvokeWithResponseStreamInput{
		FunctionName: aws.String("fn"), Payload: order(t, map[string]any{"op": "stream", "gate": g.addr()}), LogType: types.LogTypeTail,
	})
	if err != nil {
		t.Fatal(err)
	}
	stream := out.GetStream()
	defer stream.Close()
	conn := <-conns
	chunk := func() string {
		t.Helper()
		event, _ := (<-stream.Events()).(*types.InvokeWithResponseStreamResponseEventMemberPayloadChunk)
		if event == nil {
			t.Fatalf("no chunk: %v", stream.Err())
		}
		return string(event.Value.Payload)
	}
	if got := chunk(); got != testPrelude {
		t.Errorf("prelude %q", got)
	}
	for _, want := range []string{"data: 1\n\n", "data: 2\n\n"} {
		if _, err := io.WriteString(conn, "c"); err != nil {
			t.Fatal(err)
		}
		if got := chunk(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if _, err := io.WriteString(conn, "."); err != nil {
		t.Fatal(err)
	}
	end, _ := (<-stream.Events()).(*types.InvokeWithResponseStreamResponseEventMemberInvokeComplete)
	if end == nil || end.Value.ErrorCode != nil || aws.ToString(end.Value.LogResult) == "" {
		t.Errorf("end %+v, %v", end, stream.Err())
	}
	if aws.ToString(out.ExecutedVersion) != "$LATEST" || out.StatusCode != 200 {
		t.Errorf("got %+v", out)
	}
}

func TestAPI_StreamErrors(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	c := client(t, h)
	out, err := c.InvokeWithResponseStream(t.Context(), &awslambda.InvokeWithResponseStreamInput{
		FunctionName: aws.String("fn"), Payload: []byte(`{"op":"error","text":"early"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	stream := out.GetStream()
	defer stream.Close()
	end, _ := (<-stream.Events()).(*types.InvokeWithResponseStreamResponseEventMemberInvokeComplete)
	if end == nil || aws.ToString(end.Value.ErrorCode) != "Unhandled" || !strings.Contains(aws.ToString(end.Value.ErrorDetails), "early") {
		t.Errorf("end %+v, %v", end, stream.Err())
	}
	var notFound *types.ResourceNotFoundException
	if _, err := c.InvokeWithResponseStream(t.Context(), &awslambda.InvokeWithResponseStreamInput{FunctionName: aws.String("nobody")}); !errors.As(err, &notFound) {
		t.Errorf("unknown function: %v", err)
	}
}

func TestAPI_RefusesWebPagesAndOtherNames(t *testing.T) {
	t.Parallel()
	api := setup(t, nil).API()
	tests := []struct {
		host, origin string
		want         int
	}{
		{"127.0.0.1:80", "", 404},
		{"[::1]:80", "", 404},
		{"localhost", "", 404},
		{"evil.test", "", 403},
		{"127.0.0.1:80", "http://evil.test", 403},
	}
	for _, tt := range tests {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = tt.host
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%+v: got %d", tt, w.Code)
		}
	}
}

func FuzzAPI_FunctionNames(f *testing.F) {
	for _, seed := range []string{"fn", "fn:$LATEST", "fn:1", "arn:aws:lambda:us-east-1:000000000000:function:fn", "000000000000:function:fn", "function:", ":", "a/b%2f"} {
		f.Add(seed, "")
	}
	f.Add("fn", "$LATEST")
	f.Add("fn", "other")
	h, err := New(DefaultOptions())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, id, qualifier string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetPathValue("name", id)
		r.URL.RawQuery = url.Values{"Qualifier": {qualifier}}.Encode()
		name, err := h.named(r)
		switch {
		case err != nil:
			if !errors.Is(err, CodeNotFound) {
				t.Errorf("%q: %v", id, err)
			}
		case strings.Contains(name, ":") || !strings.Contains(id, name):
			t.Errorf("%q is taken for %q", id, name)
		}
	})
}
