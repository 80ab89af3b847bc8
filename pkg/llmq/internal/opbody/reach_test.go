package opbody

import (
	"errors"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// A20, IN5: what no target serves is refused at the door, with its field.
func TestCheck_IN5RefusesWhatReachesOutside(t *testing.T) {
	t.Parallel()
	const image = `{"messages":[{"content":[{"text":"hi"},{"image":{"format":"png","source":@}}]}]}`
	for _, tc := range []struct {
		op          llmq.Op
		body, field string // "" passes
	}{
		{llmq.OpResponses, `{"input":"hi"}`, ""},
		{llmq.OpResponses, `{"store":true,"background":false,"previous_response_id":null,"conversation":null,"prompt":null}`, ""},
		{llmq.OpResponses, `{"background":true}`, "background"},
		{llmq.OpResponses, `{"background":"true"}`, "background"},
		{llmq.OpResponses, `{"previous_response_id":"resp_1"}`, "previous_response_id"},
		{llmq.OpResponses, `{"conversation":{"id":"conv_1"}}`, "conversation"},
		{llmq.OpResponses, `{"prompt":{"id":"pmpt_1"}}`, "prompt"},
		{llmq.OpResponses, `{"input":[{"type":"item_reference","id":"msg_1"}]}`, "input.0.type"},
		{llmq.OpChat, `{"background":true,"conversation":"x","prompt":"x"}`, ""},
		{llmq.OpInvoke, `{"background":true,"prompt":"x"}`, ""},

		{llmq.OpChat, `{"api_base":"https://x.example"}`, "api_base"},
		{llmq.OpResponses, `{"base_url":"https://x.example"}`, "base_url"},
		{llmq.OpEmbeddings, `{"api_key":"x"}`, "api_key"},
		{llmq.OpConverse, `{"extra_body":{}}`, "extra_body"},
		{llmq.OpInvokeStream, `{"extra_headers":{}}`, "extra_headers"},
		{llmq.OpConverse, `{"additionalModelRequestFields":{"extra_headers":{}}}`, "additionalModelRequestFields.extra_headers"},
		{llmq.OpChat, `{"messages":[{"role":"user","content":"api_base","base_url":1}]}`, ""}, // of a message nobody reads it
		{llmq.OpChat, `{"api_base":null}`, ""},

		{llmq.OpChat, `{"messages":[{"content":[{"type":"file","file":{"file_id":"file-1"}}]}]}`, "messages.0.content.0.file.file_id"},
		{llmq.OpChat, `{"messages":[{"content":[{"type":"file","file":{"\u0066ile_id":"file-1"}}]}]}`, "messages.0.content.0.file.file_id"},
		{llmq.OpResponses, `{"input":[{"content":[{"type":"input_image","file_id":"file-1"}]}]}`, "input.0.content.0.file_id"},
		{llmq.OpResponses, `{"tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]}`, "tools.0.vector_store_ids"},
		{llmq.OpResponses, `{"tools":[{"type":"code_interpreter","container":"cntr_1"}]}`, "tools.0.container"},
		{llmq.OpResponses, `{"tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["file-1"]}}]}`, "tools.0.container.file_ids"},
		{llmq.OpInvoke, `{"container":"container_1"}`, "container"},
		{llmq.OpInvoke, `{"messages":[{"content":[{"type":"image","source":{"type":"file","file_id":"file_1"}}]}]}`, "messages.0.content.0.source.file_id"},

		{llmq.OpConverse, strings.Replace(image, "@", `{"s3Location":{"uri":"s3://data/off/x"}}`, 1), "messages.0.content.1.image.source.s3Location"},
		{llmq.OpConverse, strings.Replace(image, "@", `{"s3\u004cocation":{"uri":"s3://data/off/x"}}`, 1), "messages.0.content.1.image.source.s3Location"},
		{llmq.OpConverseStream, `{"messages":[{"content":[{"toolResult":{"content":[{"video":{"source":{"s3Location":{}}}}]}}]}]}`, "messages.0.content.0.toolResult.content.0.video.source.s3Location"},
		{llmq.OpInvoke, `{"inputType":"image","image":{"mediaSource":{"s3Location":{"uri":"s3://data/x"}}}}`, "image.mediaSource.s3Location"},
		{llmq.OpInvoke, `{"media":{"uri":"S3://data/x"}}`, "media.uri"},
		{llmq.OpConverse, strings.Replace(image, "@", `{"bytes":"aGk="}`, 1), ""},

		{llmq.OpChat, `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}]}`, "messages.0.content.0.image_url.url"},
		{llmq.OpChat, `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]}]}`, ""},
		{llmq.OpChat, `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"https://x.example/a.png"}}]}]}`, ""}, // the target decides
		{llmq.OpChat, `{"cache_salt":5}`, "cache_salt"},
		{llmq.OpResponses, `{"prompt_cache_key":{}}`, "prompt_cache_key"},

		// What is the caller's own data may be called anything.
		{llmq.OpChat, `{"tools":[{"type":"function","function":{"parameters":{"properties":{"x":{"default":{"file_id":"a","image_url":"b"}}}}}}],"metadata":{"file_id":"a"}}`, ""},
		{llmq.OpConverse, `{"messages":[{"content":[{"toolUse":{"name":"f","input":{"s3Location":{"uri":"s3://a"}}}},{"toolResult":{"content":[{"json":{"s3Location":1}}]}}]}]}`, ""},
		{llmq.OpConverse, `{"toolConfig":{"tools":[{"toolSpec":{"name":"f","inputSchema":{"json":{"properties":{"s3Location":{"type":"string"}}}}}}]}}`, ""},
		{llmq.OpInvoke, `{"messages":[{"content":[{"type":"tool_use","name":"f","input":{"file_id":"a"}}]}]}`, ""},
	} {
		err := Check(tc.op, []byte(tc.body))
		switch {
		case tc.field == "" != (err == nil):
			t.Errorf("%s %s: %v", tc.op, tc.body, err)
		case err != nil && (llmq.AsError(err).Field != tc.field || !strings.HasPrefix(llmq.AsError(err).Message, tc.field+" ")):
			t.Errorf("%s %s: %q of %q", tc.op, tc.body, llmq.AsError(err).Message, llmq.AsError(err).Field)
		}
		if e := llmq.AsError(err); err != nil && e.Code != llmq.CodeInvalidRequest && e.Code != llmq.CodeUnsupported {
			t.Errorf("%s: %s, which is no 400", tc.body, e.Code)
		}
	}
}

// IN5, EG4: what a target may reach its configuration says, and no more.
func TestReach_IsWhatTheTargetsConfigurationLists(t *testing.T) {
	t.Parallel()
	remote := Reach{RemoteMedia: true}
	search := Reach{HostedTools: []string{"web_search", "nova_grounding", "mcp"}}
	const link = `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"https://x.example/a.png"}}]}]}`
	for _, tc := range []struct {
		reach       Reach
		op          llmq.Op
		body, field string
	}{
		{Reach{}, llmq.OpChat, link, "messages.0.content.0.image_url.url"},
		{remote, llmq.OpChat, link, ""},
		{Reach{}, llmq.OpResponses, `{"input":[{"content":[{"type":"input_image","image_url":"HTTPS://x.example/a.png"}]}]}`, "input.0.content.0.image_url"},
		{Reach{}, llmq.OpResponses, `{"input":[{"content":[{"type":"input_file","file_url":"http://169.254.169.254/"}]}]}`, "input.0.content.0.file_url"},
		{Reach{}, llmq.OpInvoke, `{"messages":[{"content":[{"type":"image","source":{"type":"url","url":"https://x.example/a.png"}}]}]}`, "messages.0.content.0.source.url"},
		{remote, llmq.OpChat, strings.Replace(link, "https", "gopher", 1), "messages.0.content.0.image_url.url"},

		{Reach{}, llmq.OpResponses, `{"tools":[{"type":"function","name":"f"},{"type":"custom"},{"type":"computer_use_preview"},{"name":"f"},{"type":"mcp","server_url":"https://x.example"}]}`, "tools.4.type"},
		{Reach{}, llmq.OpResponses, `{"tools":[{"type":"web_search_preview_2025_03_11"}]}`, "tools.0.type"},
		{search, llmq.OpResponses, `{"tools":[{"type":"web_search_preview_2025_03_11"},{"type":"mcp"}]}`, ""},
		{search, llmq.OpResponses, `{"tools":[{"type":"image_generation"}]}`, "tools.0.type"},
		{Reach{}, llmq.OpResponses, `{"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]}`, "tools.0.type"},
		{Reach{}, llmq.OpChat, `{"web_search_options":{}}`, "web_search_options"},
		{search, llmq.OpChat, `{"web_search_options":{}}`, ""},
		{Reach{}, llmq.OpConverse, `{"toolConfig":{"tools":[{"systemTool":{"name":"nova_grounding"}}]}}`, "toolConfig.tools.0.systemTool.name"},
		{search, llmq.OpConverse, `{"toolConfig":{"tools":[{"systemTool":{"name":"nova_grounding"}}]}}`, ""},
		{Reach{}, llmq.OpConverse, `{"additionalModelRequestFields":{"tools":[{"type":"computer_20250124"},{"type":"code_execution_20250522"}]}}`, "additionalModelRequestFields.tools.1.type"},
		{Reach{}, llmq.OpInvoke, `{"mcp_servers":[{"type":"url","url":"https://x.example"}]}`, "mcp_servers"},

		{Reach{Routed: true}, llmq.OpChat, `{"models":["a"]}`, "models"},
		{Reach{Routed: true}, llmq.OpChat, `{"provider":{}}`, "provider"},
		{Reach{Routed: true}, llmq.OpChat, `{"route":"fallback"}`, "route"},
		{Reach{Routed: true}, llmq.OpResponses, `{"plugins":[]}`, "plugins"},
		{Reach{}, llmq.OpChat, `{"models":["a"],"route":"x","provider":{},"plugins":[]}`, ""},
		{search, llmq.OpInvoke, `{"container":{"id":"c_1"}}`, "container.id"},
		{Reach{}, llmq.OpChat, `{"n":1.0}`, "n"}, // the last look is the first one's too
	} {
		err := tc.reach.Check(tc.op, []byte(tc.body))
		if tc.field == "" != (err == nil) || err != nil && llmq.AsError(err).Field != tc.field {
			t.Errorf("%+v %s %s: %v at %q", tc.reach, tc.op, tc.body, err, llmq.AsError(err).Field)
		}
	}
}

// A body that nobody has checked before can't exhaust the stack, nor can an error repeat all of it.
func TestCheck_IsBounded(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 1_000_000)
	if err := Check(llmq.OpChat, []byte(deep+"1"+strings.Repeat("}", 1_000_000))); !errors.Is(err, llmq.CodeInvalidJSON) {
		t.Errorf("a deep one: %v", err)
	}
	for _, body := range []string{``, `{`, `{"a":1`, `{"a":1}{"api_key":"x"}`, `{"a":}`, `{"a":1,}`, `[1,]`} {
		if err := Check(llmq.OpChat, []byte(body)); !errors.Is(err, llmq.CodeInvalidJSON) {
			t.Errorf("%q: %v", body, err)
		}
	}
	err := Check(llmq.OpChat, []byte(`{"`+strings.Repeat("x", 10_000)+`":{"file_id":"a"}}`))
	if e := llmq.AsError(err); err == nil || len(e.Message) > 600 || len(e.Field) > 210 {
		t.Errorf("%v", err)
	}
}

func FuzzReach_Check(f *testing.F) {
	for _, s := range []string{`{}`, `{"tools":[{"type":"mcp"}]}`, `[[`, `{"messages":[{"content":[{"image_url":"x"}]}]}`, `{"a":{"s3Location":{}}}`} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, s string) {
		_ = Reach{}.Check(llmq.OpResponses, []byte(s)) // it must return
	})
}
