package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
)

// The CDK library runs in one Node process that bears no concurrent calls, so no test
// here is parallel.
func TestMain(m *testing.M) {
	code := m.Run()
	jsii.Close()
	os.Exit(code)
}

// deployed are the environments of this repository.
func deployed() []string { return []string{"dev", "prod"} }

func environmentFile(name string) string {
	return filepath.Join("..", "environments", name+".yaml")
}

// template is a stack as CloudFormation gets it.
type template struct {
	raw       []byte
	Resources map[string]resource
}

type resource struct {
	Type           string
	Properties     map[string]any
	DeletionPolicy string
}

// of lists the resources of a type, by logical id.
func (t template) of(kind string) map[string]resource {
	found := map[string]resource{}
	for id, r := range t.Resources {
		if r.Type == kind {
			found[id] = r
		}
	}
	return found
}

// synthesis is what all environments give, as main makes them: one app, the context
// of cdk.json. The binaries are stand-ins, so nothing has to be built first.
type synthesis struct {
	environments map[string]Environment
	templates    map[string]template
	report       []byte // of the validation that CDK runs on every template
}

var synthesised = sync.OnceValues(synthesise)

func synthesise() (out synthesis, err error) {
	defer func() {
		if r := recover(); r != nil { // how the library tells of errors
			err = fmt.Errorf("synthesis failed: %v", r)
		}
	}()
	dir, err := os.MkdirTemp("", "llmq-cdk-test-")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	dist, assembly := filepath.Join(dir, "dist"), filepath.Join(dir, "cdk.out")
	if err := stubBinaries(dist); err != nil {
		return out, err
	}
	context, err := cliContext()
	if err != nil {
		return out, err
	}
	app := awscdk.NewApp(&awscdk.AppProps{Context: &context, Outdir: &assembly, AnalyticsReporting: jsii.Bool(false)})
	out = synthesis{environments: map[string]Environment{}, templates: map[string]template{}}
	for _, name := range deployed() {
		env, err := Load(environmentFile(name))
		if err != nil {
			return out, err
		}
		code, err := env.Stage(dist, dir)
		if err != nil {
			return out, err
		}
		New(app, env, code)
		out.environments[name] = env
	}
	app.Synth(nil)
	for name, env := range out.environments {
		t := template{}
		if t.raw, err = os.ReadFile(filepath.Join(assembly, env.name()+".template.json")); err != nil {
			return out, err
		}
		if err := json.Unmarshal(t.raw, &t); err != nil {
			return out, err
		}
		out.templates[name] = t
	}
	out.report, err = os.ReadFile(filepath.Join(assembly, "validation-report.json"))
	return out, err
}

func stubBinaries(dist string) error {
	for _, a := range []artifact{enqueue, work, admin} {
		dir := filepath.Join(dist, string(a))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "bootstrap"), []byte("stands in for "+string(a)), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// cliContext is what the CDK command line gives the app. Without it tests would see
// another template than deployments do.
func cliContext() (map[string]any, error) {
	data, err := os.ReadFile(filepath.Join("..", "cdk.json"))
	if err != nil {
		return nil, err
	}
	var file struct{ Context map[string]any }
	return file.Context, json.Unmarshal(data, &file)
}

// eachEnvironment runs a test on every environment's template.
func eachEnvironment(t *testing.T, check func(t *testing.T, env Environment, tpl template)) {
	t.Helper()
	s, err := synthesised()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range deployed() {
		t.Run(name, func(t *testing.T) { check(t, s.environments[name], s.templates[name]) })
	}
}

// at walks into nested properties; a step that isn't there gives nil.
func at(v any, path ...any) any {
	for _, step := range path {
		switch s := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[s]
		case int:
			l, _ := v.([]any)
			if s >= len(l) {
				return nil
			}
			v = l[s]
		}
	}
	return v
}

// target is the logical id that a Ref or GetAtt points to.
func target(v any) string {
	if id, ok := at(v, "Ref").(string); ok {
		return id
	}
	id, _ := at(v, "Fn::GetAtt", 0).(string)
	return id
}

// listOf is a property that may be one value or a list of them.
func listOf(v any) []any {
	switch l := v.(type) {
	case nil:
		return nil
	case []any:
		return l
	default:
		return []any{v}
	}
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
