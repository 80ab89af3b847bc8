package sqs_test

import (
	"flag"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/local/cloud/sqs/sqstest"
)

// Where else the suite is to run: go test ./local/cloud/sqs -run Conformance -aws-region eu-west-1
var (
	awsRegion = flag.String("aws-region", "", "run the conformance suite on Amazon SQS in that region too, with the SDK's default credentials")
	endpoint  = flag.String("sqs-endpoint", "", "run the conformance suite on the SQS server at that URL too")
	slow      = flag.Bool("sqs-slow", false, "on those, also run the checks that wait for a minute")
)

// TestConformance runs the suite on a server in a bubble for each check, where what is due must come in the very instant, and a minute
// takes no time.
func TestConformance(t *testing.T) {
	t.Parallel()
	exact := sqstest.Profile{Slow: true}
	sqstest.ExerciseIn(t, exact, func(t *testing.T, check func(*testing.T, *awssqs.Client)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			server := sqs.New(sqs.Options{})
			t.Cleanup(server.Close) // before the check's own, so run after them
			check(t, clientOf("http://sqs.test", server.Transport()))
		})
	})
}

// TestConformanceOverHTTP runs over sockets and in real time what they may change: that a client has left, how soon an answer comes,
// long bodies, odd bytes, many connections. (All of it takes 20 s that way.)
func TestConformanceOverHTTP(t *testing.T) {
	t.Parallel()
	_, client := serve(t, sqs.Options{})
	rows := []string{
		"Long poll wakes at once on a send", "Client gone during a long poll: next message safe", "1 MiB body, MaximumMessageSize kept",
		"BatchRequestTooLong over 1 MiB", "InvalidMessageContents", "QueueDoesNotExist as a typed error",
		"8 consumers, 400 messages: no loss, no double",
	}
	for _, row := range rows {
		if !slices.ContainsFunc(sqstest.Rows(), func(r sqstest.Row) bool { return r.Name == row }) {
			t.Errorf("the suite has no row %q", row)
		}
	}
	sqstest.Exercise(t, client, sqstest.Profile{
		Slack: 500 * time.Millisecond, Only: func(row string) bool { return slices.Contains(rows, row) },
	})
}

// TestConformanceOfFairQueues runs the checks of message groups on a server that chooses as AWS documents it.
func TestConformanceOfFairQueues(t *testing.T) {
	t.Parallel()
	groups := sqstest.Profile{Only: func(row string) bool { return strings.Contains(row, "roup") }}
	sqstest.ExerciseIn(t, groups, func(t *testing.T, check func(*testing.T, *awssqs.Client)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			server := sqs.New(sqs.Options{NoisyGroups: true})
			t.Cleanup(server.Close)
			check(t, clientOf("http://sqs.test", server.Transport()))
		})
	})
}

// TestConformance_EveryRowOfTheSurveyIsThere holds the suite to the 32 behaviours that were found to part the emulators, and to the
// 61 checks that parted them.
func TestConformance_EveryRowOfTheSurveyIsThere(t *testing.T) {
	t.Parallel()
	rows, checks := 0, 0
	for _, row := range sqstest.Rows() {
		rows++
		names := slices.Concat([]string{row.Name}, row.Checks, row.Slow)
		checks += len(names) - 1
		for _, name := range names {
			if strings.ContainsAny(name, "/_") { // go test writes blanks as underscores, and levels with slashes
				t.Errorf("the name %q would not be one level of a test's name, or not be found in its output", name)
			}
		}
	}
	if rows < 32 || checks < 61 {
		t.Errorf("%d rows and %d checks, want 32 and 61 or more", rows, checks)
	}
}

// TestConformanceOfEndpoint runs it on another server; make test-emulators does so with other emulators.
func TestConformanceOfEndpoint(t *testing.T) {
	t.Parallel()
	if *endpoint == "" {
		t.Skip("no -sqs-endpoint was given")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 32
	t.Cleanup(transport.CloseIdleConnections)
	client := clientOf(*endpoint, sqs.RebufferTransport(transport))
	sqstest.Exercise(t, client, sqstest.Profile{Slack: time.Second, Slow: *slow})
}

// TestConformanceOfAWS runs it on Amazon SQS. It costs some thousand requests, well under a cent, and deletes what it has made.
func TestConformanceOfAWS(t *testing.T) {
	t.Parallel()
	if *awsRegion == "" {
		t.Skip("no -aws-region was given")
	}
	c, err := config.LoadDefaultConfig(t.Context(), config.WithRegion(*awsRegion))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Credentials.Retrieve(t.Context()); err != nil {
		t.Fatalf("-aws-region was given, but there are no credentials: %v", err)
	}
	sqstest.Exercise(t, awssqs.NewFromConfig(c), sqstest.Profile{Slack: 2 * time.Second, Lag: time.Minute, Slow: *slow})
}

// clientOf returns an SDK client that tries everything once.
func clientOf(url string, transport http.RoundTripper) *awssqs.Client {
	return awssqs.New(awssqs.Options{
		Region:       "us-east-1",
		BaseEndpoint: aws.String(url),
		Credentials:  credentials.NewStaticCredentialsProvider(accessKey, "secret", ""),
		HTTPClient:   &http.Client{Transport: transport},
		Retryer:      aws.NopRetryer{},
	})
}
