package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/settings"
)

// verbs is what this function needs of package admin.
type verbs interface {
	Status(ctx context.Context) admin.Status
	Metrics(ctx context.Context) admin.MetricsView
	SourceStates(ctx context.Context) []admin.SourceStatus
	Queues(ctx context.Context) []admin.QueueState
	Dead(ctx context.Context, by string, r admin.DeadRequest) (admin.DeadLetters, error)
	Redrive(ctx context.Context, by string, r admin.RedriveRequest) (admin.Redriven, error)
	Create(ctx context.Context, by string, r admin.CreateRequest) (admin.Created, error)
	Purge(ctx context.Context, by string, r admin.PurgeRequest) (admin.Purged, error)
	Pause(ctx context.Context, by string, r admin.SwitchRequest) (admin.Switched, error)
	Resume(ctx context.Context, by string, r admin.SwitchRequest) (admin.Switched, error)
	Govern(ctx context.Context) admin.Governed
	Limiter(ctx context.Context, r admin.TargetRequest) ([]admin.TargetStatus, error)
	ResetLimiter(ctx context.Context, by string, r admin.TargetRequest) (admin.Forgotten, error)
	Breakers(ctx context.Context, r admin.TargetRequest) ([]admin.BreakerStatus, error)
	ResetBreaker(ctx context.Context, by string, r admin.TargetRequest) (admin.Forgotten, error)
	TestFallback(ctx context.Context, by string, r admin.FallbackTest) (admin.FallbackTested, error)
}

// keyVerbs are those of callers' keys.
type keyVerbs interface {
	CreateKey(ctx context.Context, by string, r admin.CreateKeyRequest) (admin.NewKey, error)
	RotateKey(ctx context.Context, by string, r admin.RotateKeyRequest) (admin.NewKey, error)
	RevokeKey(ctx context.Context, by string, r admin.KeyRequest) (admin.KeyView, error)
	ShowKey(ctx context.Context, kid string) (admin.KeyView, error)
	ListKeys(ctx context.Context, after string) (admin.KeyList, error)
}

// liveVerbs are those of what holds while processes run.
type liveVerbs interface {
	Settings(ctx context.Context, model, provider string) (admin.SettingsView, error)
	Set(ctx context.Context, by string, r admin.SetRequest) (admin.Changed, error)
	Unset(ctx context.Context, by string, r admin.UnsetRequest) (admin.Changed, error)
	Reset(ctx context.Context, by string, r admin.ResetRequest) (admin.Changed, error)
	Audit(ctx context.Context) ([]settings.Change, error)
	Routing(ctx context.Context) (admin.RoutingView, error)
	Route(ctx context.Context, by string, r admin.RouteRequest) (admin.Changed, error)
	Kill(ctx context.Context, by string, r admin.KillRequest) (admin.Changed, error)
	ResetRouting(ctx context.Context, by string, r admin.ResetRequest) (admin.Changed, error)
	Fallback(ctx context.Context) (admin.FallbackView, error)
	SetFallback(ctx context.Context, by string, r admin.FallbackRequest) (admin.Changed, error)
	ResetFallback(ctx context.Context, by string, r admin.ResetFallbackRequest) (admin.Changed, error)
}

// doctorVerb looks at everything.
type doctorVerb interface {
	Diagnose(ctx context.Context, by string, r admin.DoctorRequest) (admin.Diagnosis, error)
}

// gate lets operators in. The API has checked a signature before and names who signed: on AWS by IAM, which lets nobody else through.
// Locally a key will do too; "" is none.
type gate struct{ key string }

// localOperator is who holds the local key.
const localOperator = "local admin key"

// opens says who asks; "" may not.
func (g gate) opens(ev events.APIGatewayProxyRequest) string {
	if arn := ev.RequestContext.Identity.UserArn; arn != "" {
		return arn
	}
	for name, value := range ev.Headers {
		if strings.EqualFold(name, "Authorization") {
			got, want := sha256.Sum256([]byte(strings.TrimPrefix(value, "Bearer "))), sha256.Sum256([]byte(g.key))
			if g.key != "" && subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
				return localOperator
			}
			return ""
		}
	}
	return ""
}

type handler func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error)

// asked is what a request says besides its path.
type asked struct {
	name  string // the path's last part, where the route ends in {kid}
	query map[string]string
	body  []byte
}

// targets are those that a query names.
func (a asked) targets() admin.TargetRequest {
	return admin.TargetRequest{Model: a.query["model"], Target: a.query["target"]}
}

// serving answers a request whose sender is known to be by.
type serving func(ctx context.Context, by string, a asked) (any, error)

// route is a path with its method.
type route struct {
	method string
	open   bool // to anybody who reaches it
	serve  serving
}

// statusView is the state of everything: what package admin reads of queues and targets, the event sources, and how live calls go.
type statusView struct {
	admin.Status
	Sources []admin.SourceStatus `json:"sources"`
	Routing admin.RoutingView    `json:"routing"`
}

// ofKey stands for a key's id at the end of a path.
const ofKey = "{kid}"

// routes is the one table of the admin API. Keys have paths of their own, so that a policy can name them.
func routes(v verbs, k keyVerbs, l liveVerbs, d doctorVerb) map[string]route {
	get := func(f func(context.Context) any) route {
		return route{method: http.MethodGet, serve: func(ctx context.Context, _ string, _ asked) (any, error) { return f(ctx), nil }}
	}
	health := get(func(context.Context) any { return map[string]string{"status": "ok"} })
	health.open = true
	return map[string]route{
		"/health": health,
		"/status": get(func(ctx context.Context) any {
			routing, err := l.Routing(ctx)
			if err != nil { // as with all else that can't be read, its own part says so
				routing = admin.RoutingView{Models: []admin.ModelRouting{}, Fault: err.Error()}
			}
			return statusView{v.Status(ctx), v.SourceStates(ctx), routing}
		}),
		"/metrics":        get(func(ctx context.Context) any { return v.Metrics(ctx) }),
		"/queues":         get(func(ctx context.Context) any { return map[string]any{"queues": v.Queues(ctx)} }),
		"/queues/create":  post(v.Create),
		"/queues/dead":    post(v.Dead),
		"/queues/redrive": post(v.Redrive),
		"/queues/purge":   post(v.Purge),
		"/queues/pause":   post(v.Pause),
		"/queues/resume":  post(v.Resume),
		"/keys":           read(func(ctx context.Context, a asked) (admin.KeyList, error) { return k.ListKeys(ctx, a.query["after"]) }),
		"/keys/" + ofKey:  read(func(ctx context.Context, a asked) (admin.KeyView, error) { return k.ShowKey(ctx, a.name) }),
		"/keys/create":    post(k.CreateKey),
		"/keys/rotate":    post(k.RotateKey),
		"/keys/revoke":    post(k.RevokeKey),
		"/settings": read(func(ctx context.Context, a asked) (admin.SettingsView, error) {
			return l.Settings(ctx, a.query["model"], a.query["provider"])
		}),
		"/settings/set":   post(l.Set),
		"/settings/unset": post(l.Unset),
		"/settings/reset": post(l.Reset),
		"/settings/audit": read(func(ctx context.Context, _ asked) (map[string][]settings.Change, error) {
			changes, err := l.Audit(ctx)
			return map[string][]settings.Change{"changes": changes}, err
		}),
		"/routing":       read(func(ctx context.Context, _ asked) (admin.RoutingView, error) { return l.Routing(ctx) }),
		"/routing/set":   post(l.Route),
		"/routing/kill":  post(l.Kill),
		"/routing/reset": post(l.ResetRouting),
		"/limiter": read(func(ctx context.Context, a asked) (map[string][]admin.TargetStatus, error) {
			rows, err := v.Limiter(ctx, a.targets())
			return map[string][]admin.TargetStatus{"targets": rows}, err
		}),
		"/limiter/reset": post(v.ResetLimiter),
		"/breaker": read(func(ctx context.Context, a asked) (map[string][]admin.BreakerStatus, error) {
			rows, err := v.Breakers(ctx, a.targets())
			return map[string][]admin.BreakerStatus{"breakers": rows}, err
		}),
		"/breaker/reset":  post(v.ResetBreaker),
		"/fallback":       read(func(ctx context.Context, _ asked) (admin.FallbackView, error) { return l.Fallback(ctx) }),
		"/fallback/set":   post(l.SetFallback),
		"/fallback/test":  post(v.TestFallback),
		"/fallback/reset": post(l.ResetFallback),
		"/doctor":         post(d.Diagnose),
	}
}

// read is a verb that changes nothing and may fail.
func read[Out any](verb func(context.Context, asked) (Out, error)) route {
	return route{method: http.MethodGet, serve: func(ctx context.Context, _ string, a asked) (any, error) { return verb(ctx, a) }}
}

// post is a verb that takes an object.
func post[In, Out any](verb func(context.Context, string, In) (Out, error)) route {
	return route{method: http.MethodPost, serve: func(ctx context.Context, by string, a asked) (any, error) {
		var in In
		if err := decode(a.body, &in); err != nil {
			return nil, err
		}
		return verb(ctx, by, in)
	}}
}

// newHandler serves the admin API. GET /health is open to anybody who reaches it.
func newHandler(v verbs, k keyVerbs, l liveVerbs, d doctorVerb, g gate) handler {
	table := routes(v, k, l, d)
	return func(ctx context.Context, ev events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
		by := g.opens(ev)
		r, name, known := find(table, ev.Path)
		switch {
		case !r.open && by == "":
			return fail(llmq.Errorf(llmq.CodeInvalidKey, "the admin API takes operators only: sign with IAM on AWS, send the admin key locally"))
		case !known:
			return fail(llmq.Errorf(llmq.CodeUnknownRoute, "no such path; the admin API has %s", strings.Join(slices.Sorted(maps.Keys(table)), ", ")))
		case ev.HTTPMethod != r.method:
			return fail(llmq.Errorf(llmq.CodeMethodNotAllowed, "use %s", r.method))
		}
		body, err := bodyOf(ev)
		if err != nil {
			return fail(llmq.AsError(err))
		}
		out, err := r.serve(ctx, by, asked{name: name, query: ev.QueryStringParameters, body: body})
		if errors.Is(err, admin.ErrUnrecorded) { // it is done, and a key that was made is shown this once
			return answer(http.StatusOK, map[string]string{headerAudit: "missing"}, out)
		}
		if err != nil {
			return fail(llmq.AsError(err))
		}
		return answer(http.StatusOK, nil, out)
	}
}

// headerAudit is "missing" where the state bucket took no record of what was done.
const headerAudit = "X-LLMQ-Audit"

// find looks a path up: as it is, or by its last part's place.
func find(table map[string]route, path string) (r route, name string, known bool) {
	if r, known = table[path]; known {
		return r, "", true
	}
	i := strings.LastIndexByte(path, '/') + 1
	r, known = table[path[:i]+ofKey]
	return r, path[i:], known
}

func bodyOf(ev events.APIGatewayProxyRequest) ([]byte, error) {
	if !ev.IsBase64Encoded {
		return []byte(ev.Body), nil
	}
	body, err := base64.StdEncoding.DecodeString(ev.Body)
	if err != nil {
		return nil, llmq.Errorf(llmq.CodeInvalidJSON, "the body can't be read")
	}
	return body, nil
}

func fail(e *llmq.Error) (events.APIGatewayProxyResponse, error) {
	headers := map[string]string{}
	if e.RetryAfter > 0 {
		headers["Retry-After"] = strconv.Itoa(int(e.RetryAfter.Seconds()))
	}
	told := map[string]string{"code": string(e.Code), "message": auth.Redact(e.Message)} // it may quote what was sent, a key for one
	if e.Field != "" {
		told["field"] = e.Field
	}
	return answer(e.Code.Info().Status, headers, map[string]any{"error": told})
}

func answer(status int, headers map[string]string, v any) (events.APIGatewayProxyResponse, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return events.APIGatewayProxyResponse{}, err
	}
	all := map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store"}
	maps.Copy(all, headers)
	return events.APIGatewayProxyResponse{StatusCode: status, Headers: all, Body: string(body)}, nil
}
