package secrets

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
)

// roundTrip plays Secrets Manager below the SDK, so that its wire is really read.
type roundTrip func(*http.Request) (status int, body string)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := f(r)
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.1"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}, nil
}

func manager(f roundTrip) *Manager {
	return NewManager(secretsmanager.New(secretsmanager.Options{
		Region: "us-east-1", Credentials: aws.AnonymousCredentials{}, HTTPClient: &http.Client{Transport: f},
		RetryMaxAttempts: 1,
	}))
}

func TestManager_ReadsText(t *testing.T) {
	t.Parallel()
	var target, asked string
	m := manager(func(r *http.Request) (int, string) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		target, asked = r.Header.Get("X-Amz-Target"), string(b)
		return 200, `{"Name":"x","SecretString":"` + value + `"}`
	})
	s, err := m.GetSecretValue(t.Context(), ref.ARN)
	if err != nil || s.Reveal() != value {
		t.Errorf("got %q, %v", s.Reveal(), err)
	}
	if target != "secretsmanager.GetSecretValue" || asked != `{"SecretId":"`+ref.ARN+`"}` {
		t.Errorf("asked %s %s", target, asked)
	}
	s, err = m.GetPreviousValue(t.Context(), ref.ARN)
	if err != nil || s.Reveal() != value || asked != `{"SecretId":"`+ref.ARN+`","VersionStage":"AWSPREVIOUS"}` {
		t.Errorf("the one before: got %q, %v; asked %s", s.Reveal(), err, asked)
	}
}

func TestManager_TellsGoneFromFailing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		status int
		body   string
		gone   bool
	}{
		{"unknown", 400, `{"__type":"ResourceNotFoundException","Message":"can't find"}`, true},
		{"scheduled for deletion", 400, `{"__type":"InvalidRequestException","Message":"marked for deletion"}`, true},
		{"no right", 400, `{"__type":"AccessDeniedException","Message":"not authorized"}`, false},
		{"failing", 500, `{"__type":"InternalServiceError","Message":"x"}`, false},
		{"binary", 200, `{"Name":"x","SecretBinary":"c2stbGl2ZQ=="}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, err := manager(func(*http.Request) (int, string) { return tc.status, tc.body }).GetSecretValue(t.Context(), ref.ARN)
			if err == nil || errors.Is(err, ErrNotFound) != tc.gone || !s.IsZero() {
				t.Errorf("got %q, %v", s.Reveal(), err)
			}
		})
	}
}
