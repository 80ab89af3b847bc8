package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// template is an environment as CloudFormation gets it. Resources are those of its stack and of all nested stacks, which have
// the nested stack's logical id before their own; what they are given as parameters is filled in.
type template struct {
	raw       map[string][]byte // the templates by their files' names
	Resources map[string]resource
	Outputs   map[string]any
	sizes     map[string]int // number of resources of each template
}

type resource struct {
	Type           string
	Properties     map[string]any
	DeletionPolicy string
	UpdatePolicy   map[string]any
	DependsOn      any
}

// waitsFor reports whether r is made after the resource of that id.
func (r resource) waitsFor(id string) bool { return slices.Contains(listOf(r.DependsOn), any(id)) }

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

// synthesis is what environments give, as main makes them: one app, the context of cdk.json. The binaries are stand-ins, so
// nothing has to be built first.
type synthesis struct {
	environments map[string]Environment
	templates    map[string]template
	report       []byte            // of the validation that CDK runs on every template
	nag          map[string][]byte // reports of cdk-nag, by file
}

var synthesised = sync.OnceValues(func() (synthesis, error) {
	var files []string
	for _, name := range deployed() {
		files = append(files, environmentFile(name))
	}
	return synthesise(nil, files...)
})

// synthesise makes the stacks of environment files. Extend may add to the app before.
func synthesise(extend func(awscdk.App), files ...string) (out synthesis, err error) {
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
	if extend != nil {
		extend(app)
	}
	out = synthesis{environments: map[string]Environment{}, templates: map[string]template{}}
	for _, file := range files {
		env, err := Load(file)
		if err != nil {
			return out, err
		}
		code, err := env.Stage(dist, dir)
		if err != nil {
			return out, err
		}
		New(app, env, code)
		out.environments[env.Config.Env] = env
	}
	app.Synth(nil)
	for name, env := range out.environments {
		if out.templates[name], err = readTemplate(assembly, env.name()); err != nil {
			return out, err
		}
	}
	out.nag = map[string][]byte{}
	reports, err := filepath.Glob(filepath.Join(assembly, "*-NagReport.json"))
	if err != nil {
		return out, err
	}
	for _, file := range reports {
		if out.nag[filepath.Base(file)], err = os.ReadFile(file); err != nil {
			return out, err
		}
	}
	out.report, err = os.ReadFile(filepath.Join(assembly, "validation-report.json"))
	return out, err
}

// readTemplate reads a stack out of a cloud assembly, and its nested stacks into it.
func readTemplate(assembly, stack string) (template, error) {
	t := template{raw: map[string][]byte{}, Resources: map[string]resource{}, sizes: map[string]int{}}
	type body struct {
		Resources map[string]map[string]any
		Outputs   map[string]any
	}
	read := func(file string) (b body, err error) {
		raw, err := os.ReadFile(filepath.Join(assembly, file))
		if err != nil {
			return b, err
		}
		err = json.Unmarshal(raw, &b)
		t.raw[file], t.sizes[file] = raw, len(b.Resources)
		return b, err
	}
	var assets struct {
		Files map[string]struct{ Source struct{ Path string } }
	}
	raw, err := os.ReadFile(filepath.Join(assembly, stack+".assets.json"))
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(raw, &assets); err != nil {
		return t, err
	}
	parent, err := read(stack + ".template.json")
	if err != nil {
		return t, err
	}
	t.Outputs = parent.Outputs
	for id, r := range parent.Resources {
		if err := t.add(id, r); err != nil {
			return t, err
		}
		if r["Type"] != "AWS::CloudFormation::Stack" {
			continue
		}
		hash := assetHash.FindString(text(at(r, "Properties", "TemplateURL")))
		nested, err := read(assets.Files[hash].Source.Path)
		if err != nil {
			return t, fmt.Errorf("template of %s: %w", id, err)
		}
		given, _ := at(r, "Properties", "Parameters").(map[string]any)
		for inner, r := range nested.Resources {
			if err := t.add(id+"."+inner, filled(r, id, given, nested.Resources)); err != nil {
				return t, err
			}
		}
	}
	return t, nil
}

func (t template) add(id string, properties any) error {
	var r resource
	if err := json.Unmarshal([]byte(text(properties)), &r); err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	t.Resources[id] = r
	return nil
}

// filled is a part of a nested stack's template with its parameters' values, and with logical ids as the whole has them.
func filled(v any, stack string, given map[string]any, own map[string]map[string]any) any {
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["Ref"].(string); ok && len(v) == 1 {
			if value, isGiven := given[ref]; isGiven {
				return value
			}
			if own[ref] != nil {
				return map[string]any{"Ref": stack + "." + ref}
			}
		}
		if of, ok := at(v, "Fn::GetAtt", 0).(string); ok && own[of] != nil {
			return map[string]any{"Fn::GetAtt": []any{stack + "." + of, at(v, "Fn::GetAtt", 1)}}
		}
		out := map[string]any{}
		for k, part := range v {
			out[k] = filled(part, stack, given, own)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, part := range v {
			out[i] = filled(part, stack, given, own)
		}
		return out
	}
	return v
}

func stubBinaries(dist string) error {
	for _, a := range []artifact{enqueue, work, admin, "team-worker"} {
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

// function is the function that v, which may point to its alias, stands for.
func (t template) function(v any) resource {
	r := t.Resources[target(v)]
	if r.Type == "AWS::Lambda::Alias" {
		return t.Resources[target(r.Properties["FunctionName"])]
	}
	return r
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
