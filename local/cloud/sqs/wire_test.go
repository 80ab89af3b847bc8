package sqs_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/cloud/sqs"
)

const authorization = "AWS4-HMAC-SHA256 Credential=" + accessKey + "/20261129/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=00"

const queueURL = "http://sqs.test/000000000000/calls"

// request returns a well-formed request for an operation.
func request(operation, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://sqs.test/", strings.NewReader(body))
	r.Header.Set("Authorization", authorization)
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	r.Header.Set("X-Amz-Target", "AmazonSQS."+operation)
	return r
}

// ask sends a request to the handler itself, without a socket, and returns its answer.
func ask(server *sqs.Server, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return w
}

// must asks and returns the result of an operation that succeeds.
func must(t *testing.T, server *sqs.Server, operation, body string) map[string]any {
	t.Helper()
	w := ask(server, request(operation, body))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: status %d, %s", operation, w.Code, w.Body)
	}
	result := map[string]any{}
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &result); err != nil {
			t.Fatalf("%s: %v in %s", operation, err, w.Body)
		}
	}
	return result
}

// local returns a server with the queue "calls" that is asked without a socket.
func local(t *testing.T, o sqs.Options) *sqs.Server {
	t.Helper()
	server := sqs.New(o)
	t.Cleanup(server.Close)
	must(t, server, "CreateQueue", `{"QueueName":"calls"}`)
	return server
}

func TestServer_RefusesWhatIsNoSQSRequest(t *testing.T) {
	t.Parallel()
	server := local(t, sqs.Options{})
	header := func(name, value string) *http.Request {
		r := request("SendMessage", `{"QueueUrl":"`+queueURL+`","MessageBody":"x"}`)
		if value == "" {
			r.Header.Del(name)
			return r
		}
		r.Header.Set(name, value)
		return r
	}
	get := header("X", "y")
	get.Method = http.MethodGet
	for name, c := range map[string]struct {
		request *http.Request
		status  int
		query   string // the header, which also is what SDKs tell as the code
		kind    string
	}{
		"unsigned": {header("Authorization", ""), 403, "MissingAuthenticationToken;Sender", "com.amazon.coral.service#MissingAuthenticationTokenException"},
		"bearer":   {header("Authorization", "Bearer x"), 400, "IncompleteSignature;Sender", "com.amazon.coral.service#IncompleteSignatureException"},
		"no key": {
			header("Authorization", "AWS4-HMAC-SHA256 Credential=/20261129, Signature=0"), 400, "IncompleteSignature;Sender",
			"com.amazon.coral.service#IncompleteSignatureException",
		},
		"no target":         {header("X-Amz-Target", ""), 400, "UnknownOperationException;Sender", "com.amazon.coral.service#UnknownOperationException"},
		"other service":     {header("X-Amz-Target", "AmazonSNS.Publish"), 400, "UnknownOperationException;Sender", "com.amazon.coral.service#UnknownOperationException"},
		"unknown operation": {request("Frobnicate", "{}"), 400, "UnknownOperationException;Sender", "com.amazon.coral.service#UnknownOperationException"},
		"query protocol": {
			header("Content-Type", "application/x-www-form-urlencoded"), 415, "UnsupportedMediaType;Sender",
			"com.amazon.coral.service#UnsupportedMediaTypeException",
		},
		"GET":               {get, 405, "MethodNotAllowed;Sender", "com.amazon.coral.service#MethodNotAllowedException"},
		"no JSON":           {request("SendMessage", "x"), 400, "SerializationException;Sender", "com.amazon.coral.service#SerializationException"},
		"wrong type":        {request("SendMessage", `{"DelaySeconds":"5"}`), 400, "SerializationException;Sender", "com.amazon.coral.service#SerializationException"},
		"fraction":          {request("SendMessage", `{"DelaySeconds":1.5}`), 400, "SerializationException;Sender", "com.amazon.coral.service#SerializationException"},
		"twice":             {request("SendMessage", `{"MessageBody":"a","MessageBody":"b"}`), 400, "SerializationException;Sender", "com.amazon.coral.service#SerializationException"},
		"not UTF-8":         {request("SendMessage", "{\"MessageBody\":\"\xff\"}"), 400, "SerializationException;Sender", "com.amazon.coral.service#SerializationException"},
		"lone surrogate":    {request("SendMessage", `{"MessageBody":"\ud800"}`), 400, "SerializationException;Sender", "com.amazon.coral.service#SerializationException"},
		"no queue":          {request("SendMessage", `{"MessageBody":"x"}`), 400, "MissingParameter;Sender", "com.amazon.coral.service#MissingRequiredParameterException"},
		"other case":        {request("SendMessage", `{"queueurl":"`+queueURL+`","MessageBody":"x"}`), 400, "MissingParameter;Sender", "com.amazon.coral.service#MissingRequiredParameterException"},
		"bad address":       {request("SendMessage", `{"QueueUrl":"http://sqs.test/calls","MessageBody":"x"}`), 404, "InvalidAddress;Sender", "com.amazonaws.sqs#InvalidAddress"},
		"other account":     {request("PurgeQueue", `{"QueueUrl":"http://sqs.test/1/calls"}`), 400, "AWS.SimpleQueueService.NonExistentQueue;Sender", "com.amazonaws.sqs#QueueDoesNotExist"},
		"escaped character": {request("SendMessage", `{"QueueUrl":"`+queueURL+`","MessageBody":"\u0001"}`), 400, "InvalidMessageContents;Sender", "com.amazonaws.sqs#InvalidMessageContents"},
		"too large":         {request("SendMessage", strings.Repeat(" ", 32<<20+1)), 413, "RequestEntityTooLarge;Sender", "com.amazon.coral.service#RequestEntityTooLargeException"},
		"permissions":       {request("AddPermission", `{"QueueUrl":"`+queueURL+`"}`), 400, "AWS.SimpleQueueService.UnsupportedOperation;Sender", "com.amazonaws.sqs#UnsupportedOperation"},
		"FIFO":              {request("CreateQueue", `{"QueueName":"a.fifo"}`), 400, "AWS.SimpleQueueService.UnsupportedOperation;Sender", "com.amazonaws.sqs#UnsupportedOperation"},
		"bad handle":        {request("DeleteMessage", `{"QueueUrl":"`+queueURL+`","ReceiptHandle":"x"}`), 404, "ReceiptHandleIsInvalid;Sender", "com.amazonaws.sqs#ReceiptHandleIsInvalid"},
		"no timeout": {
			request("ChangeMessageVisibility", `{"QueueUrl":"`+queueURL+`","ReceiptHandle":"x"}`), 400, "MissingParameter;Sender",
			"com.amazon.coral.service#MissingRequiredParameterException",
		},
		"deduplication id": {
			request("SendMessage", `{"QueueUrl":"`+queueURL+`","MessageBody":"x","MessageDeduplicationId":"x"}`), 400, "InvalidParameterValue;Sender",
			"com.amazon.coral.service#InvalidParameterValueException",
		},
		"empty group": {
			request("SendMessage", `{"QueueUrl":"`+queueURL+`","MessageBody":"x","MessageGroupId":""}`), 400, "InvalidParameterValue;Sender",
			"com.amazon.coral.service#InvalidParameterValueException",
		},
		"list attribute": {
			request("SendMessage", `{"QueueUrl":"`+queueURL+`","MessageBody":"x","MessageAttributes":{"a":{"DataType":"String","StringListValues":["x"]}}}`),
			400, "InvalidParameterValue;Sender", "com.amazon.coral.service#InvalidParameterValueException",
		},
		"other system attribute": {
			request("SendMessage", `{"QueueUrl":"`+queueURL+`","MessageBody":"x","MessageSystemAttributes":{"SenderId":{"DataType":"String","StringValue":"x"}}}`),
			400, "InvalidParameterValue;Sender", "com.amazon.coral.service#InvalidParameterValueException",
		},
		"attempt id": {
			request("ReceiveMessage", `{"QueueUrl":"`+queueURL+`","ReceiveRequestAttemptId":"x"}`), 400, "InvalidParameterValue;Sender",
			"com.amazon.coral.service#InvalidParameterValueException",
		},
		"unknown attribute": {
			request("ReceiveMessage", `{"QueueUrl":"`+queueURL+`","MessageSystemAttributeNames":["x"]}`), 400, "InvalidAttributeName;Sender",
			"com.amazonaws.sqs#InvalidAttributeName",
		},
		"zero messages": {
			request("ReceiveMessage", `{"QueueUrl":"`+queueURL+`","MaxNumberOfMessages":0}`), 400, "InvalidParameterValue;Sender",
			"com.amazon.coral.service#InvalidParameterValueException",
		},
		"bad page": {request("ListQueues", `{"MaxResults":0}`), 400, "InvalidParameterValue;Sender", "com.amazon.coral.service#InvalidParameterValueException"},
		"bad token": {
			request("ListQueues", `{"MaxResults":1,"NextToken":"!"}`), 400, "InvalidParameterValue;Sender",
			"com.amazon.coral.service#InvalidParameterValueException",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ask(server, c.request)
			var got struct {
				Type    string `json:"__type"`
				Message string `json:"message"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("body %q: %v", w.Body, err)
			}
			if w.Code != c.status || w.Header().Get("X-Amzn-Query-Error") != c.query || got.Type != c.kind || got.Message == "" {
				t.Fatalf("got %d, %s, %s, %q\nwant %d, %s, %s", w.Code, w.Header().Get("X-Amzn-Query-Error"), got.Type, got.Message, c.status, c.query, c.kind)
			}
		})
	}
}

func TestServer_QueueURLIsOnTheHostThatWasAsked(t *testing.T) {
	t.Parallel()
	server := local(t, sqs.Options{AccountID: "123456789012", Region: "ap-south-1"})
	r := request("GetQueueUrl", `{"QueueName":"calls"}`)
	r.Host = "127.0.0.1:9324"
	if got, want := ask(server, r).Body.String(), `{"QueueUrl":"http://127.0.0.1:9324/123456789012/calls"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	r = request("GetQueueUrl", `{"QueueName":"calls"}`)
	r.TLS = &tls.ConnectionState{}
	if got, want := ask(server, r).Body.String(), `{"QueueUrl":"https://sqs.test/123456789012/calls"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	arn := must(t, server, "GetQueueAttributes", `{"QueueUrl":"http://x/123456789012/calls","AttributeNames":["QueueArn"]}`)
	if diff := cmp.Diff(map[string]any{"Attributes": map[string]any{"QueueArn": "arn:aws:sqs:ap-south-1:123456789012:calls"}}, arn); diff != "" {
		t.Error(diff)
	}
}

func TestServer_SenderIsTheAccessKey(t *testing.T) {
	t.Parallel()
	server := local(t, sqs.Options{})
	must(t, server, "SendMessage", `{"QueueUrl":"`+queueURL+`","MessageBody":"x",
		"MessageSystemAttributes":{"AWSTraceHeader":{"DataType":"String","StringValue":"Root=1-2-3"}}}`)
	got := must(t, server, "ReceiveMessage", `{"QueueUrl":"`+queueURL+`","MessageSystemAttributeNames":["SenderId","AWSTraceHeader"]}`)
	message := got["Messages"].([]any)[0].(map[string]any)
	if diff := cmp.Diff(map[string]any{"SenderId": accessKey, "AWSTraceHeader": "Root=1-2-3"}, message["Attributes"]); diff != "" {
		t.Fatal(diff)
	}
}

// The Go SDK cannot send a VisibilityTimeout, a DelaySeconds or a WaitTimeSeconds of 0; others can, and mean it.
func TestServer_ZeroIsNotUnset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := sqs.New(sqs.Options{})
		defer server.Close()
		must(t, server, "CreateQueue", `{"QueueName":"calls","Attributes":{"DelaySeconds":"900","ReceiveMessageWaitTimeSeconds":"20"}}`)
		began := time.Now()
		if got := must(t, server, "ReceiveMessage", `{"QueueUrl":"`+queueURL+`","WaitTimeSeconds":0}`); len(got) != 0 {
			t.Fatalf("empty receive: %v", got)
		}
		must(t, server, "SendMessage", `{"QueueUrl":"`+queueURL+`","MessageBody":"x","DelaySeconds":0}`)
		for range 2 {
			if got := must(t, server, "ReceiveMessage", `{"QueueUrl":"`+queueURL+`","VisibilityTimeout":0}`); len(got) != 1 {
				t.Fatalf("got %v, want the message, which stays visible", got)
			}
		}
		if d := time.Since(began); d != 0 {
			t.Fatalf("it took %v, want no time", d)
		}
	})
}

func TestServer_LongPollOfAClientThatLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := sqs.New(sqs.Options{})
		defer server.Close()
		must(t, server, "CreateQueue", `{"QueueName":"calls"}`)
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			ask(server, request("ReceiveMessage", `{"QueueUrl":"`+queueURL+`","WaitTimeSeconds":20}`).WithContext(ctx))
		}()
		synctest.Wait()
		leave()
		<-done
		must(t, server, "SendMessage", `{"QueueUrl":"`+queueURL+`","MessageBody":"x"}`)
		if got := must(t, server, "ReceiveMessage", `{"QueueUrl":"`+queueURL+`"}`); len(got) != 1 {
			t.Fatal("the message is hidden")
		}
	})
}

func TestServer_CloseEndsALongPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := sqs.New(sqs.Options{})
		must(t, server, "CreateQueue", `{"QueueName":"calls"}`)
		answer := make(chan *httptest.ResponseRecorder, 1)
		go func() {
			answer <- ask(server, request("ReceiveMessage", `{"QueueUrl":"`+queueURL+`","WaitTimeSeconds":20}`))
		}()
		synctest.Wait()
		began := time.Now()
		server.Close()
		if w := <-answer; w.Code != http.StatusOK || w.Body.String() != "{}" || time.Since(began) != 0 {
			t.Fatalf("the poll got %d %s after %v", w.Code, w.Body, time.Since(began))
		}
		if w := ask(server, request("ListQueues", "{}")); w.Code != http.StatusServiceUnavailable ||
			w.Header().Get("X-Amzn-Query-Error") != "ServiceUnavailable;Receiver" {
			t.Fatalf("after Close: %d %s", w.Code, w.Body)
		}
	})
}

func TestServer_StatsCountByOperation(t *testing.T) {
	t.Parallel()
	server := local(t, sqs.Options{})
	for range 3 {
		must(t, server, "SendMessage", `{"QueueUrl":"`+queueURL+`","MessageBody":"x"}`)
	}
	ask(server, request("SendMessage", `{"QueueUrl":"`+queueURL+`"}`)) // refused, and billed
	ask(server, request("Frobnicate", `{}`))
	want := sqs.Stats{
		Requests: map[string]int64{"CreateQueue": 1, "SendMessage": 4},
		Billed:   map[string]int64{"CreateQueue": 1, "SendMessage": 4},
	}
	if diff := cmp.Diff(want, server.Stats()); diff != "" {
		t.Fatal(diff)
	}
}

func TestServer_LogsNoContent(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	server := local(t, sqs.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	must(t, server, "SendMessage", `{"QueueUrl":"`+queueURL+`","MessageBody":"PROMPT",
		"MessageAttributes":{"a":{"DataType":"String","StringValue":"VALUE"}}}`)
	ask(server, request("SendMessage", `{"QueueUrl":"`+queueURL+`","MessageBody":"PROMPT\u0001"}`))
	ask(server, request("SendMessage", `{"QueueUrl":"`+queueURL+`","MessageBody":"PROMPT`))
	for _, secret := range []string{"PROMPT", "VALUE", accessKey} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log holds %s", secret)
		}
	}
	for _, want := range []string{"operation=SendMessage", "status=400", "error_code=InvalidMessageContents"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log.String())
		}
	}
}

func operationNames() []string {
	return []string{
		"AddPermission", "CancelMessageMoveTask", "ChangeMessageVisibility", "ChangeMessageVisibilityBatch", "CreateQueue", "DeleteMessage",
		"DeleteMessageBatch", "DeleteQueue", "GetQueueAttributes", "GetQueueUrl", "ListDeadLetterSourceQueues", "ListMessageMoveTasks",
		"ListQueueTags", "ListQueues", "PurgeQueue", "ReceiveMessage", "RemovePermission", "SendMessage", "SendMessageBatch",
		"SetQueueAttributes", "StartMessageMoveTask", "TagQueue", "UntagQueue",
	}
}

// Whatever is asked, the answer is JSON, and an error has a shape and a code.
func FuzzServer(f *testing.F) {
	names := operationNames()
	seeds := []string{
		``, `{}`, `null`, `[]`, `{"QueueUrl":"` + queueURL + `"}`, `{"QueueUrl":"%"}`, `{"QueueName":"calls","Attributes":{"RedrivePolicy":"{}"}}`,
		`{"QueueUrl":"` + queueURL + `","MessageBody":"x","DelaySeconds":1,"MessageAttributes":{"a":{"DataType":"Binary","BinaryValue":"eA=="}}}`,
		`{"QueueUrl":"` + queueURL + `","Entries":[{"Id":"a","MessageBody":"x"},{"Id":"b","MessageBody":"\u0001"}]}`,
		`{"QueueUrl":"` + queueURL + `","Entries":[{"Id":"a","ReceiptHandle":"eA==","VisibilityTimeout":3}]}`,
		`{"QueueUrl":"` + queueURL + `","Attributes":{"VisibilityTimeout":"1"},"AttributeNames":["All"],"Tags":{"a":"b"},"TagKeys":["a"]}`,
		`{"QueueUrl":"` + queueURL + `","MaxNumberOfMessages":10,"WaitTimeSeconds":0,"MessageAttributeNames":["a.*"],"AttributeNames":["All"]}`,
		`{"SourceArn":"arn:aws:sqs:us-east-1:000000000000:calls","TaskHandle":"e30="}`, `{"MaxResults":1,"NextToken":"YQ=="}`,
	}
	for i := range names {
		for _, seed := range seeds {
			f.Add(uint8(i), seed)
		}
	}
	f.Fuzz(func(t *testing.T, operation uint8, body string) {
		server := local(t, sqs.Options{})
		name := names[int(operation)%len(names)]
		// A poll may wait for 20 s; nobody would fuzz for that long.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		w := ask(server, request(name, body).WithContext(ctx))
		var got struct {
			Type string `json:"__type"`
		}
		if w.Body.Len() > 0 && json.Unmarshal(w.Body.Bytes(), &got) != nil {
			t.Fatalf("%s %q: the answer is no JSON: %q", name, body, w.Body)
		}
		if (w.Code == http.StatusOK) != (got.Type == "") {
			t.Fatalf("%s %q: status %d with shape %q", name, body, w.Code, got.Type)
		}
		if w.Code == http.StatusInternalServerError {
			t.Fatalf("%s %q: %s", name, body, w.Body)
		}
	})
}

func TestServer_KnowsEveryOperationOfTheSDK(t *testing.T) {
	t.Parallel()
	server := local(t, sqs.Options{})
	for _, name := range operationNames() {
		if query := ask(server, request(name, "[]")).Header().Get("X-Amzn-Query-Error"); query != "SerializationException;Sender" {
			t.Errorf("%s: %s", name, query)
		}
	}
	if !slices.IsSorted(operationNames()) {
		t.Error("the list is out of order, so easily incomplete")
	}
}
