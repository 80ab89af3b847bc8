package llmq_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/llm-queue/llmq/"

// deps lists what a package links, tests apart.
func deps(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}}", module+pkg).Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v", pkg, err)
	}
	return strings.Fields(string(out))
}

func isStd(pkg string) bool { return !strings.Contains(strings.SplitN(pkg, "/", 2)[0], ".") }

// The arrows of docs/ARCHITECTURE.md: what each package may link besides the standard
// library, as prefixes. A package that is not listed may link anything but stand-ins.
func TestArrows_ImportsGoOneWay(t *testing.T) {
	t.Parallel()
	const (
		self      = module + "pkg/llmq"
		redis     = "github.com/redis/go-redis"
		xxhash    = "github.com/cespare/xxhash"
		atomic    = "go.uber.org/atomic"
		cpu       = "golang.org/x/sys/cpu"
		jsontext  = "github.com/go-json-experiment/json"
		gjson     = "github.com/tidwall/"
		keys      = self + "/internal/keys"
		luascript = self + "/internal/luascript"
		opbody    = self + "/internal/opbody"
		pubsub    = self + "/internal/pubsub"
	)
	// What makes spans, by the interfaces of OpenTelemetry; its SDK is the wiring's alone.
	traces := []string{
		self + "/tracing$", gjson, xxhash, "go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/codes$", "go.opentelemetry.io/otel/trace", "go.opentelemetry.io/otel/semconv/",
	}
	state := []string{self + "$", keys, luascript, pubsub, redis, xxhash, atomic, cpu}
	for pkg, allowed := range map[string][]string{
		"pkg/llmq":                     {self + "$"},
		"pkg/llmq/queue":               {self + "$"},
		"pkg/llmq/provider":            {self + "$"},
		"pkg/llmq/retry":               {},
		"pkg/llmq/fallback":            {self + "$"},
		"pkg/llmq/config":              {self + "$", self + "/queue$", "go.yaml.in/yaml"},
		"pkg/llmq/awscost":             {self + "$", self + "/queue$", self + "/config$", "go.yaml.in/yaml"},
		"pkg/llmq/routing":             {},
		"pkg/llmq/settings":            {self + "$", self + "/queue$", self + "/config$", "go.yaml.in/yaml"},
		"pkg/llmq/live":                append(slices.Clone(state), self+"/queue$", self+"/config$", self+"/settings$", "go.yaml.in/yaml"),
		"pkg/llmq/internal/keys":       {self + "$"},
		"pkg/llmq/internal/pubsub":     {redis, xxhash, atomic, cpu},
		"pkg/llmq/internal/luascript":  {self + "$", redis, xxhash, atomic, cpu},
		"pkg/llmq/internal/strictjson": {self + "$", jsontext},
		"pkg/llmq/internal/opbody":     {self + "$", gjson, jsontext},
		"pkg/llmq/capacity":            state,
		"pkg/llmq/results":             state,
		"pkg/llmq/forecast":            state,
		"pkg/llmq/claims":              append(slices.Clone(state), jsontext),
		"pkg/llmq/tracing":             append(slices.Clone(traces), self+"$"),
		"pkg/llmq/engine": append(slices.Concat(state, traces), jsontext,
			self+"/capacity$", self+"/claims$", self+"/results$", self+"/provider$", self+"/retry$", self+"/fallback$", self+"/telemetry$"),
		"pkg/llmq/client": append(slices.Concat(state, traces), jsontext, opbody,
			self+"/claims$", self+"/results$", self+"/queue$", self+"/capacity$", self+"/engine$", self+"/provider$", self+"/retry$", self+"/fallback$",
			self+"/routing$", self+"/telemetry$", self+"/internal/strictjson", self+"/forecast$"),
		"pkg/llmq/worker": append(slices.Concat(state, traces), jsontext, "golang.org/x/sync/semaphore$", self+"/internal/strictjson", opbody,
			self+"/capacity$", self+"/claims$", self+"/results$", self+"/provider$", self+"/queue$", self+"/engine$",
			self+"/retry$", self+"/fallback$", self+"/telemetry$"),
		"pkg/llmq/telemetry":         {},
		"pkg/llmq/governor":          {self + "$"},
		"pkg/llmq/provider/cassette": {self + "$", self + "/provider$", jsontext},
		"pkg/llmq/auth":              {self + "$"},
		"pkg/llmq/keyrate":           append(slices.Clone(state), self+"/auth$"),
		"pkg/llmq/httpapi": append(slices.Clone(traces), self+"$", self+"/auth$", self+"/internal/strictjson", opbody, jsontext,
			self+"/internal/eventframe", module+"docs$", "github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream", "github.com/aws/smithy-go/"),
	} {
		t.Run(pkg, func(t *testing.T) {
			t.Parallel()
			for _, dep := range deps(t, pkg) {
				if isStd(dep) || dep == module+pkg {
					continue
				}
				ok := slices.ContainsFunc(allowed, func(a string) bool {
					exact, end := strings.CutSuffix(a, "$")
					return dep == exact || !end && strings.HasPrefix(dep, a)
				})
				if !ok {
					t.Errorf("%s links %s, which its arrows don't allow", pkg, dep)
				}
			}
		})
	}
}

// SEC30: what is deployed holds no stand-in and no test code.
func TestArrows_FunctionsLinkNoTestCode(t *testing.T) {
	t.Parallel()
	forbidden := []string{
		"testing", module + "local/", module + "pkg/llmq/llmqtest", module + "pkg/llmq/auth/authtest", module + "pkg/llmq/client/clienttest", module + "pkg/llmq/provider/providertest",
		module + "pkg/llmq/provider/cassette", module + "infra/",
		"github.com/alicebob/miniredis", "github.com/johannesboyne/gofakes3", "github.com/google/go-cmp", "pgregory.net/rapid",
		"github.com/prometheus", "go.uber.org/goleak", "github.com/aws/aws-cdk-go", "github.com/openai/openai-go", "github.com/santhosh-tekuri/jsonschema",
	}
	for _, fn := range []string{"enqueue", "worker", "admin"} {
		for _, dep := range deps(t, "functions/"+fn) {
			for _, f := range forbidden {
				if dep == f || strings.HasPrefix(dep, strings.TrimSuffix(f, "/")+"/") {
					t.Errorf("functions/%s links %s", fn, dep)
				}
			}
		}
	}
}
