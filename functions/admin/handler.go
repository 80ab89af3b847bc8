package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
)

// verbs is what this function needs of package admin.
type verbs interface {
	Status(ctx context.Context) admin.Status
}

// gate lets operators in. On AWS the API has checked IAM before and names the caller;
// locally there is a key.
type gate struct {
	iam bool
	key string
}

func (g gate) opens(ev events.APIGatewayProxyRequest) bool {
	if g.iam {
		return ev.RequestContext.Identity.UserArn != ""
	}
	for name, value := range ev.Headers {
		if strings.EqualFold(name, "Authorization") {
			got, want := sha256.Sum256([]byte(strings.TrimPrefix(value, "Bearer "))), sha256.Sum256([]byte(g.key))
			return g.key != "" && subtle.ConstantTimeCompare(got[:], want[:]) == 1
		}
	}
	return false
}

type handler func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error)

// newHandler serves GET /health, open to anybody who reaches it, and GET /status.
func newHandler(v verbs, g gate) handler {
	return func(ctx context.Context, ev events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
		routes := map[string]func() any{
			"/health": func() any { return map[string]string{"status": "ok"} },
			"/status": func() any { return v.Status(ctx) },
		}
		serve, known := routes[ev.Path]
		switch {
		case ev.Path != "/health" && !g.opens(ev):
			return fail(llmq.Errorf(llmq.CodeInvalidKey, "the admin API takes operators only: sign with IAM on AWS, send the admin key locally"))
		case !known:
			return fail(llmq.Errorf(llmq.CodeUnknownRoute, "no such path; the admin API has GET /health and GET /status"))
		case ev.HTTPMethod != http.MethodGet:
			return fail(llmq.Errorf(llmq.CodeMethodNotAllowed, "use GET"))
		}
		return answer(http.StatusOK, serve())
	}
}

func fail(e *llmq.Error) (events.APIGatewayProxyResponse, error) {
	return answer(e.Code.Info().Status, map[string]any{"error": map[string]string{"code": string(e.Code), "message": e.Message}})
}

func answer(status int, v any) (events.APIGatewayProxyResponse, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return events.APIGatewayProxyResponse{}, err
	}
	return events.APIGatewayProxyResponse{StatusCode: status, Headers: map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store"}, Body: string(body)}, nil
}
