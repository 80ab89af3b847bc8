package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/llm-queue/llmq/docs"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/auth/authtest"
)

// openAPI is the served document and a compiler of its schemas.
type openAPI struct {
	t        *testing.T
	doc      map[string]any
	compiler *jsonschema.Compiler
	sent     *sync.Map // by the name of a header, in lower case: it was sent
}

func readOpenAPI(t *testing.T) openAPI {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(docs.OpenAPI()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	top, ok := doc.(map[string]any)
	if !ok {
		t.Fatal("the document is no object")
	}
	return openAPI{t, top, c, &sync.Map{}}
}

// at follows member names, and references on the way.
func (o openAPI) at(from any, names ...string) any {
	o.t.Helper()
	for {
		m, ok := from.(map[string]any)
		if ref, isRef := m["$ref"].(string); isRef {
			from = o.at(o.doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			continue
		}
		if len(names) == 0 {
			return from
		}
		if !ok {
			return nil
		}
		from, names = m[names[0]], names[1:]
	}
}

// valid holds a value against a schema of the document, by its pointer.
func (o openAPI) valid(pointer, what string, value []byte) {
	o.t.Helper()
	s, err := o.compiler.Compile("openapi.json#" + pointer)
	if err != nil {
		o.t.Fatalf("compile %s: %v", pointer, err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		o.t.Errorf("%s: %v\n%s", what, err, value)
		return
	}
	if err := s.Validate(v); err != nil {
		o.t.Errorf("%s: %v\n%s", what, err, value)
	}
}

func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// answered holds an answer of the door against what the document says of its route and status.
func (o openAPI) answered(rt Route, w *httptest.ResponseRecorder) {
	o.t.Helper()
	what := fmt.Sprintf("%s %s: %d", rt.Method, rt.Path, w.Code)
	responses := "/paths/" + escape(rt.Path) + "/" + strings.ToLower(rt.Method) + "/responses/"
	pointer, response := responses+strconv.Itoa(w.Code), o.at(o.doc, "paths", rt.Path, strings.ToLower(rt.Method), "responses", strconv.Itoa(w.Code))
	if response == nil {
		pointer, response = responses+"default", o.at(o.doc, "paths", rt.Path, strings.ToLower(rt.Method), "responses", "default")
	}
	if m, ok := o.at(o.doc, "paths", rt.Path, strings.ToLower(rt.Method), "responses").(map[string]any); ok && m["default"] != nil && strings.HasSuffix(pointer, "default") {
		if ref, ok := m["default"].(map[string]any)["$ref"].(string); ok {
			pointer = strings.TrimPrefix(ref, "#")
		}
	}
	declared, _ := o.at(response, "headers").(map[string]any)
	for name := range w.Header() {
		if slices.Contains([]string{"Content-Type", "Content-Length", "Cache-Control"}, name) { // of HTTP itself
			continue
		}
		o.sent.Store(strings.ToLower(name), true)
		as := func(known string) bool { return strings.EqualFold(known, name) }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(declared)), as) {
			o.t.Errorf("%s: the header %s is not declared", what, name)
		}
	}
	contentType := w.Header().Get("Content-Type")
	content := o.at(response, "content")
	switch {
	case o.at(content, contentType, "schema") != nil && strings.HasSuffix(contentType, "json"):
		o.valid(pointer+"/content/"+escape(contentType)+"/schema", what, w.Body.Bytes())
	case o.at(content, contentType) == nil && o.at(content, "*/*") == nil:
		o.t.Errorf("%s: nothing is said of a %s", what, contentType)
	}
}

// A17, KT5: every route is in the document, and it has no other; what is open there is open here.
func TestOpenAPI_HasTheRoutes(t *testing.T) {
	t.Parallel()
	o := readOpenAPI(t)
	want, got := map[string]bool{}, map[string]bool{}
	for _, rt := range table() {
		want[rt.Method+" "+rt.Path] = rt.access == open
	}
	paths, _ := o.at(o.doc, "paths").(map[string]any)
	ids := map[any]bool{}
	for path, item := range paths {
		methods, _ := item.(map[string]any)
		for method, op := range methods {
			security, said := o.at(op).(map[string]any)["security"].([]any)
			got[strings.ToUpper(method)+" "+path] = said && len(security) == 0
			ids[o.at(op, "operationId")] = true
			if o.at(op, "responses", "default") == nil || o.at(op, "summary") == nil {
				t.Errorf("%s %s lacks its errors or its summary", method, path)
			}
			for _, name := range []string{modelID, callID} {
				if strings.Contains(path, name) && !slices.ContainsFunc(o.list(op, "parameters"), func(p any) bool { return "{"+fmt.Sprint(o.at(p, "name"))+"}" == name }) {
					t.Errorf("%s %s does not tell of %s", method, path, name)
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes, and which are open (-code +document):\n%s", diff)
	}
	if len(ids) != len(want) {
		t.Errorf("%d operation ids for %d routes", len(ids), len(want))
	}
}

func (o openAPI) list(from any, names ...string) []any {
	l, _ := o.at(from, names...).([]any)
	return l
}

func texts[T ~string](of []T) []any {
	var out []any
	for _, v := range of {
		out = append(out, string(v))
	}
	return out
}

// A17: codes, statuses and what to do; states, ops, lanes and wires; the headers that steer. All of them, and no others.
func TestOpenAPI_HasTheCodesAndNames(t *testing.T) {
	t.Parallel()
	o := readOpenAPI(t)
	schema := func(name string, more ...string) any {
		return o.at(o.doc, append([]string{"components", "schemas", name}, more...)...)
	}
	var codes, errs []any
	for _, info := range llmq.Codes() {
		codes = append(codes, string(info.Code))
		errs = append(errs, map[string]any{"code": string(info.Code), "status": json.Number(strconv.Itoa(info.Status)), "retryable": info.Retry, "means": info.Means, "do": info.Do})
	}
	for _, tc := range []struct {
		what string
		got  any
		want any
	}{
		{"codes", schema("ErrorCode", "enum"), codes},
		{"x-errors", schema("ErrorCode", "x-errors"), errs},
		{"states", schema("State", "enum"), texts(llmq.States())},
		{"ops", schema("Op", "enum"), texts(llmq.Ops())},
		{"lanes", schema("Lane", "enum"), texts(llmq.Lanes())},
		{"fallback", schema("Fallback", "enum"), texts([]llmq.FallbackPolicy{llmq.FallbackChain, llmq.FallbackTarget})},
		{"wires", schema("Models", "properties", "data", "items", "properties", "wires", "items", "enum"), texts(llmq.Wires())},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s (-code +document):\n%s", tc.what, diff)
		}
	}
	var s submission
	properties, _ := schema("Submission", "properties").(map[string]any)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(s.fields())), slices.Sorted(maps.Keys(properties))); diff != "" {
		t.Errorf("fields of a submission (-code +document):\n%s", diff)
	}
	named, _ := schema("Submission", "properties", "headers", "properties").(map[string]any)
	if diff := cmp.Diff(slices.Sorted(slices.Values(llmq.OpInvoke.Headers())), slices.Sorted(maps.Keys(named))); diff != "" {
		t.Errorf("headers of an invocation (-code +document):\n%s", diff)
	}
	var headers []string
	for _, p := range o.list(o.doc, "paths", "/v1/chat/completions", "post", "parameters") {
		headers = append(headers, fmt.Sprint(o.at(p, "name")))
	}
	want := append(steering(), hdrIdempotency, hdrTrace)
	slices.Sort(want)
	slices.Sort(headers)
	if diff := cmp.Diff(want, headers); diff != "" {
		t.Errorf("headers that are read (-code +document):\n%s", diff)
	}
}

// Every example of the document is valid by its own schema, and those of submissions are taken.
func TestOpenAPI_ExamplesAreValid(t *testing.T) {
	t.Parallel()
	o := readOpenAPI(t)
	found := 0
	var walk func(pointer string, v any)
	walk = func(pointer string, v any) {
		switch v := v.(type) {
		case []any:
			for i, e := range v {
				walk(pointer+"/"+strconv.Itoa(i), e)
			}
		case map[string]any:
			for name, member := range v {
				examples, isMap := member.(map[string]any)
				if name != "examples" || !isMap {
					walk(pointer+"/"+escape(name), member)
					continue
				}
				for which, e := range examples {
					found++
					value, err := json.Marshal(o.at(e, "value"))
					if err != nil {
						t.Fatal(err)
					}
					o.valid(pointer+"/schema", pointer+" "+which, value)
					if strings.Contains(pointer, "requestBody") {
						if w := setup(t, nil).submit(string(value)); w.Code != http.StatusAccepted {
							t.Errorf("%s is refused: %s", value, w.Body)
						}
					}
				}
			}
		}
	}
	walk("", o.doc)
	if found < 8 {
		t.Errorf("%d examples", found)
	}
	for i, e := range o.list(o.doc, "components", "schemas", "Error", "examples") {
		value, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		o.valid("/components/schemas/Error", "example "+strconv.Itoa(i), value)
	}
}

// What the running door answers is what the document says, headers included: each route's successes and every error on every one. No
// header is described that is never sent.
func TestOpenAPI_AnswersAreAsDescribed(t *testing.T) {
	t.Parallel()
	all := readOpenAPI(t)
	t.Cleanup(func() {
		described, _ := all.at(all.doc, "components", "headers").(map[string]any)
		for name := range described {
			if _, sent := all.sent.Load(strings.ToLower(name)); !sent {
				t.Errorf("the header %s is described and never sent", name)
			}
		}
	})
	wish := authtest.All("team-a", "chat-a", "conv-a", "both-a", "raw-a", "reports")
	wish.CallsPerMinute = 7
	limited := testKeys.Issue(wish).Key
	served := testMeta
	served.Direct, served.Eta = true, new(time.Second)
	bodies := map[llmq.Op]string{llmq.OpChat: chatBody, llmq.OpResponses: `{"model":"chat-a","input":"x"}`, llmq.OpEmbeddings: `{"model":"chat-a","input":"x"}`}
	for _, rt := range table() {
		t.Run(rt.Method+" "+rt.Path, func(t *testing.T) {
			t.Parallel()
			o := readOpenAPI(t) // its own, for a compiler is not for several at once
			o.sent = all.sent
			body := bodies[rt.op]
			switch {
			case rt.Path == callsPath:
				body = submitted
			case body == "":
				body = `{"messages":[]}`
			}
			path := pathOf(rt)
			if rt.op == llmq.OpInvoke || rt.op == llmq.OpInvokeStream {
				path = strings.Replace(path, "conv-a", "raw-a", 1)
			}
			ask := func(b *bundle, path string, h ...string) *httptest.ResponseRecorder {
				b.door.rates = rateFunc(func(_ string, perMinute int, _ string) (auth.Rate, error) {
					return auth.Rate{Limit: perMinute, Left: 6, Reset: time.Minute}, nil
				})
				w := b.send(rt.Method, path, body, append([]string{"Authorization", "Bearer " + limited}, h...)...)
				o.answered(rt.Route, w)
				return w
			}
			for i, c := range someCalls() {
				b := setup(t, func(ctx context.Context, r llmq.Request) (*llmq.Reply, error) {
					reply, err := ok(ctx, r)
					reply.Meta = served
					return reply, err
				})
				b.calls.stream = func(context.Context, llmq.Request) (llmq.Stream, error) {
					return &scripted{parts: []part{{0, "", io.EOF}}}, nil
				}
				b.calls.follow = func(int64) (llmq.Stream, error) { return &scripted{parts: []part{{0, "", io.EOF}}}, nil }
				b.stands(c)
				var waits []string
				if i == 0 {
					b.calls.ends, waits = make(chan llmq.Call, 1), []string{"Prefer", "wait=1"}
					b.calls.ends <- c
				}
				if w := ask(b, path, waits...); w.Code == http.StatusNotFound || i == 0 && w.Code >= 300 {
					t.Errorf("%s: %d %s", path, w.Code, w.Body)
				}
			}
			if w := setup(t, ok).send(http.MethodPatch, path, body); w.Code != http.StatusMethodNotAllowed {
				t.Errorf("PATCH: %d", w.Code)
			} else {
				o.answered(rt.Route, w)
			}
			if rt.access == open {
				return
			}
			ask(setup(t, ok), path, "Authorization", "")
			for _, info := range llmq.Codes() {
				e := llmq.Errorf(info.Code, "so it went").At("model")
				e.Meta = served
				b := setup(t, func(context.Context, llmq.Request) (*llmq.Reply, error) { return nil, e })
				b.calls.stream = func(context.Context, llmq.Request) (llmq.Stream, error) { return nil, e }
				b.calls.refuses = e
				w := ask(b, path)
				if rt.access != anyKey && w.Code < 400 {
					t.Errorf("%s: %d", info.Code, w.Code)
				}
				if strings.HasPrefix(rt.Path, callsPath) && (w.Code != info.Status || nativeErrorOf(t, w).Code != string(info.Code)) {
					t.Errorf("%s: got %d %s", info.Code, w.Code, w.Body)
				}
			}
		})
	}
}

// someCalls is one of each state.
func someCalls() []llmq.Call {
	out := []llmq.Call{doneCall(`{"a":1}`)}
	text := doneCall("data: x\n\n")
	text.Reply.ContentType, text.Reply.Stream = "application/json", true
	out = append(out, text, llmq.Call{ID: "r-1", State: llmq.StateQueued, Next: callCreated, Deadline: callCreated}, llmq.Call{ID: "r-1", State: llmq.StateRunning, Attempts: 1})
	for _, s := range []llmq.State{llmq.StateFailed, llmq.StateCancelled, llmq.StateExpired, llmq.StateDead} {
		e := llmq.Errorf(llmq.CodeRateLimited, "so it went").At("x").After(1)
		e.Meta = testMeta
		out = append(out, llmq.Call{ID: "r-1", State: s, Err: e})
	}
	return out
}

// A13: what is served is what is published.
func TestDocuments_AreServed(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for path, want := range map[string][2]string{
		"/llmq/v1/openapi.json": {"application/json", docs.OpenAPI()}, "/llmq/v1/message.schema.json": {"application/schema+json", docs.MessageSchema()},
	} {
		w := b.send(http.MethodGet, path, "")
		if w.Code != 200 || w.Header().Get("Content-Type") != want[0] || w.Body.String() != want[1] || len(want[1]) < 1000 {
			t.Errorf("%s: got %d %v, %d bytes", path, w.Code, w.Header(), w.Body.Len())
		}
	}
}
