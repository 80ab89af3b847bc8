package stack

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// methodsOf lists the methods of the API of that name.
func methodsOf(t *testing.T, tpl template, name string) map[string]resource {
	t.Helper()
	out := map[string]resource{}
	for id, m := range tpl.of("AWS::ApiGateway::Method") {
		if tpl.Resources[target(m.Properties["RestApiId"])].Properties["Name"] == name {
			out[id] = m
		}
	}
	if len(out) == 0 {
		t.Fatalf("API %s has no methods", name)
	}
	return out
}

func TestAPIs_AreRegional(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, _ Environment, tpl template) {
		for id, a := range tpl.of("AWS::ApiGateway::RestApi") {
			if diff := cmp.Diff([]any{"REGIONAL"}, at(a.Properties, "EndpointConfiguration", "Types")); diff != "" {
				t.Errorf("%s: %s", id, diff)
			}
		}
	})
}

func TestDoorAPI_StreamsEveryRouteFor15Minutes(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		methods := methodsOf(t, tpl, env.name())
		if len(methods) != 2 { // the root and all below it
			t.Errorf("%d methods", len(methods))
		}
		for id, m := range methods {
			in := m.Properties["Integration"]
			got := []any{m.Properties["HttpMethod"], at(in, "Type"), at(in, "ResponseTransferMode"), at(in, "TimeoutInMillis")}
			if diff := cmp.Diff([]any{"ANY", "AWS_PROXY", "STREAM", 900000.0}, got); diff != "" {
				t.Errorf("%s: %s", id, diff)
			}
			if uri := text(at(in, "Uri")); !strings.Contains(uri, "2021-11-15") || !strings.Contains(uri, "response-streaming-invocations") {
				t.Errorf("%s calls %s", id, uri)
			}
		}
	})
}

func TestAdminAPI_AsksForIAMOnEveryMethod(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		for id, m := range methodsOf(t, tpl, env.name("admin")) {
			if m.Properties["AuthorizationType"] != "AWS_IAM" || m.Properties["HttpMethod"] != "GET" && m.Properties["HttpMethod"] != "POST" {
				t.Errorf("%s: %v by %v", id, m.Properties["HttpMethod"], m.Properties["AuthorizationType"])
			}
		}
	})
}

// No route of one API reaches the other's function.
func TestAPIs_ReachTheirOwnFunctionOnly(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		for api, function := range map[string]string{env.name(): env.name("enqueue"), env.name("admin"): env.name("admin")} {
			for id, m := range methodsOf(t, tpl, api) {
				called := at(m.Properties, "Integration", "Uri", "Fn::Join", 1, 1)
				if got := tpl.function(called).Properties["FunctionName"]; got != function {
					t.Errorf("%s calls %v, want %s", id, got, function)
				}
			}
		}
		for id, p := range tpl.of("AWS::Lambda::Permission") {
			if p.Properties["Principal"] != "apigateway.amazonaws.com" || p.Properties["SourceArn"] == nil {
				t.Errorf("%s lets in %s", id, text(p.Properties))
			}
		}
	})
}

func TestStages_AreThrottledAndLogNoContent(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, _ Environment, tpl template) {
		stages := tpl.of("AWS::ApiGateway::Stage")
		if len(stages) != 2 {
			t.Errorf("%d stages", len(stages))
		}
		for id, s := range stages {
			settings := listOf(s.Properties["MethodSettings"])
			if len(settings) != 1 {
				t.Fatalf("%s has %d settings", id, len(settings))
			}
			got := []any{at(settings, 0, "HttpMethod"), at(settings, 0, "ResourcePath"), at(settings, 0, "DataTraceEnabled"), at(settings, 0, "LoggingLevel")}
			if diff := cmp.Diff([]any{"*", "/*", false, "ERROR"}, got); diff != "" {
				t.Errorf("%s: %s", id, diff)
			}
			if rate, _ := at(settings, 0, "ThrottlingRateLimit").(float64); rate <= 0 {
				t.Errorf("%s is not throttled", id)
			}
			format, _ := at(s.Properties, "AccessLogSetting", "Format").(string)
			var line map[string]string
			if err := json.Unmarshal([]byte(format), &line); err != nil {
				t.Errorf("%s logs %q: %v", id, format, err)
			}
			for _, leak := range []string{"header", "query", "body", "$context.path", "error.message", "authorizer", "apiKey"} {
				if strings.Contains(format, leak) {
					t.Errorf("%s logs %s", id, leak)
				}
			}
		}
	})
}

// Clients of either dialect read the gateway's own errors as they read the door's.
func TestGatewayResponses_HaveTheDoorsShape(t *testing.T) {
	type response struct {
		Status, Code, Retry, AWS string
	}
	want := map[string]response{
		"THROTTLED":           {"429", "no_capacity", "true", "ThrottlingException"},
		"REQUEST_TOO_LARGE":   {"413", "request_too_large", "false", "ValidationException"},
		"INTEGRATION_TIMEOUT": {"504", "timeout", "false", "ModelTimeoutException"},
		"INTEGRATION_FAILURE": {"500", "internal_error", "false", "InternalServerException"},
		"DEFAULT_4XX":         {"", "invalid_request", "false", "ValidationException"},
		"DEFAULT_5XX":         {"", "internal_error", "false", "InternalServerException"},
	}
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		got := map[string]response{}
		for id, r := range tpl.of("AWS::ApiGateway::GatewayResponse") {
			if name := tpl.Resources[target(r.Properties["RestApiId"])].Properties["Name"]; name != env.name() {
				t.Errorf("%s belongs to %v", id, name)
			}
			var body struct {
				Message string
				Error   struct {
					Message, Type, Code string
					Param               *string
				}
			}
			source, _ := at(r.Properties, "ResponseTemplates", "application/json").(string)
			if err := json.Unmarshal([]byte(source), &body); err != nil {
				t.Fatalf("%s: %q: %v", id, source, err)
			}
			if body.Message == "" || body.Message != body.Error.Message || body.Error.Type == "" || body.Error.Param != nil {
				t.Errorf("%s answers %s", id, source)
			}
			header := func(name string) string {
				v, _ := at(r.Properties, "ResponseParameters", "gatewayresponse.header."+name).(string)
				return strings.Trim(v, "'")
			}
			if header("X-LLMQ-Error-Code") != body.Error.Code {
				t.Errorf("%s: header and body name different codes", id)
			}
			if (header("Retry-After") != "") != (header("X-Should-Retry") == "true") {
				t.Errorf("%s: Retry-After and X-Should-Retry disagree", id)
			}
			status, _ := r.Properties["StatusCode"].(string)
			got[r.Properties["ResponseType"].(string)] = response{status, body.Error.Code, header("X-Should-Retry"), header("X-Amzn-Errortype")}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("gateway responses (-want +got):\n%s", diff)
		}
	})
}

// The account's logging role is shared by every API of the region: removing the stack
// must not silence the others.
func TestGatewayLogging_OutlivesTheStack(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, _ Environment, tpl template) {
		for id, a := range tpl.of("AWS::ApiGateway::Account") {
			role := target(a.Properties["CloudWatchRoleArn"])
			for _, kept := range []string{id, role} {
				if got := tpl.Resources[kept].DeletionPolicy; got != "Retain" {
					t.Errorf("%s is removed with the stack: %q", kept, got)
				}
			}
			if len(listOf(tpl.Resources[role].Properties["Policies"])) == 0 {
				t.Errorf("the policy of %s is removed with the stack", role)
			}
		}
	})
}
