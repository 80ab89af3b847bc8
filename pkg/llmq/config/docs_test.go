package config

import (
	"fmt"
	"strings"
	"testing"
)

// docs/CONFIG.md is made from the table, and so can't say what the loader doesn't do.
func TestDocs_ConfigPageIsMadeFromTheTable(t *testing.T) {
	t.Parallel()
	golden(t, "../../../docs/CONFIG.md", []byte(page()))
}

func page() string {
	var b strings.Builder
	b.WriteString(`# Configuration

<!-- Made from the table in pkg/llmq/config; change that, then run
     go test ./pkg/llmq/config -run TestDocs -update -->

One YAML file per environment says everything; LLMQ_* variables win over it. It is ` + "`LLMQ_CONFIG`" + `, else
` + "`llmq.yaml`" + ` beside a function's code, else ` + "`llmq.yaml`" + ` in the working directory. Every fault is
told at once, with its line, and nothing starts until there is none. An unknown key or LLMQ_* variable is
a fault; an empty variable is as good as none.

Seconds are plain numbers and may have decimals. A secret is a reference, never the secret itself:
` + "`{env: NAME}`" + ` locally, ` + "`{arn: ARN}`" + ` of Secrets Manager on AWS. Anchors, aliases and tags are refused.

` + "```yaml\n")
	for line := range strings.Lines(example) {
		b.WriteString(line)
	}
	b.WriteString("```\n")
	for _, part := range []struct {
		title string
		rows  []setting
	}{{"Deployment and callers", deployment()}, {"Providers and models", models()}, {"Jobs", jobRows()}, {"Lanes and timing", running()}, {"Limits", limiter()}, {"What the CDK app makes (kind: aws)", deploying()}} {
		fmt.Fprintf(&b, "\n## %s\n\n| key | value | default | what it does |\n|---|---|---|---|\n", part.title)
		for _, st := range part.rows {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", st.path, cell(valueOf(st)), cell(defaultOf(st)), cell(meaningOf(st)))
		}
	}
	b.WriteString(tryLimits())
	b.WriteString("\n## Variables\n\n```sh\n" + listing() + "```\n")
	return b.String()
}

const example = `kind: local
env: local
valkey: {cluster: false, tls: false}
storage: {state_bucket: llmq-state}
key_pepper: {env: LLMQ_DEV_PEPPER}
providers:
  openai:
    type: openai
    base_url: https://api.openai.com/v1
    api_key: {env: OPENAI_API_KEY}
models:
  chat:
    targets:
      - {name: main, provider: openai, model_id: gpt-4o-mini, max_concurrency: 20}
`

// The example on the page must be one that works.
func TestDocs_ExampleLoads(t *testing.T) {
	t.Parallel()
	if _, err := Parse("CONFIG.md", []byte(example), []string{"LLMQ_DEV_PEPPER=x"}); err != nil {
		t.Fatal(err)
	}
}

// listing is every variable, as the lines of an .env file.
func listing() string {
	var b strings.Builder
	line := func(name, value, doc string) { fmt.Fprintf(&b, "# %s\n#%s=%s\n", doc, name, value) }
	for _, k := range knobs() {
		line(k.name, "", k.doc)
	}
	for _, st := range settings() {
		switch {
		case st.env == "":
		case st.laneDef != nil:
			for _, s := range newDraft(&Config{}).scopes(st.path) {
				line(st.variable(s), st.fallback(s), s.prefix+st.leaf()+": "+st.doc)
			}
		default:
			doc := st.path + ": " + st.doc
			if st.def != "" && st.defNote != "" { // what the line shows is not the default everywhere
				doc += ". Default: " + st.defNote
			}
			line(st.env, st.def, doc)
		}
	}
	return b.String()
}

func valueOf(st setting) string {
	v := st.form.String()
	if bounds := st.bounds(); bounds != "" {
		v += ", " + bounds
	}
	return v
}

func defaultOf(st setting) string {
	switch {
	case st.required:
		return "required"
	case st.laneDef != nil:
		var of []string
		for _, l := range laneNames() {
			of = append(of, l+" "+st.fallback(scope{name: l}))
		}
		return strings.Join(of, ", ")
	case st.defNote != "":
		return st.defNote
	case st.above != "":
		return "`" + st.above + "`"
	}
	return st.def
}

func meaningOf(st setting) string {
	s := st.doc
	if st.why != "" && st.bounds() != "" {
		s += ". Why: " + st.why
	}
	if st.env != "" {
		s += ". `" + st.env + "`"
	}
	return s
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// Every row of the table can be read, written and told.
func TestTable_RowsAreWhole(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, st := range settings() {
		collection := st.form == formMap || st.form == formItems
		switch {
		case seen[st.path]:
			t.Errorf("%s stands in the table twice", st.path)
		case st.doc == "":
			t.Errorf("%s has no doc", st.path)
		case collection == (st.at != nil):
			t.Errorf("%s: a setting has a field, a collection has none", st.path)
		case (st.form == formCount || st.form == formShare || st.form == formNumber || st.form == formSecs || st.form == formFullSec) && (st.high <= st.low || st.why == ""):
			t.Errorf("%s has no bounds, or no reason for them", st.path)
		case st.required && (st.def != "" || st.laneDef != nil):
			t.Errorf("%s is required and has a default", st.path)
		}
		seen[st.path] = true
	}
}
