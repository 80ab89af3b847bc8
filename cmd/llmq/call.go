package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/remote"
	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
)

// calling is what a call's flags say.
type calling struct {
	op, model, file        string
	lane, id, fallback     string
	timeoutSecs, maxTokens int
	stream, submit, quiet  bool
}

// The ops by their names on the command line.
const (
	opChat      = "chat"
	opResponses = "responses"
	opConverse  = "converse"
	opInvoke    = "invoke"
	opEmbed     = "embed"
)

func callOps() []string { return []string{opChat, opResponses, opConverse, opInvoke, opEmbed} }

// opsOf says by which ops what is named by its paths is called here; "" where no path is named.
func opsOf(paths string) string {
	var ops []string
	for _, op := range callOps() {
		if c := (calling{op: op}); strings.Contains(paths, strings.TrimPrefix(c.path(), "/model/")) {
			ops = append(ops, "--op "+op)
		}
	}
	if ops == nil {
		return ""
	}
	return "llmq call takes " + strings.Join(ops, " or ") + " for it"
}

// bedrock reports whether an op's path names the model, and its reply comes in Bedrock's frames.
func (c calling) bedrock() bool { return c.op == opConverse || c.op == opInvoke }

// maxBodyBytes bounds a body that is read from a file; the door takes less.
const maxBodyBytes = 64 << 20

func (a *app) call() *cobra.Command {
	var ask calling
	c := &cobra.Command{
		Use:   "call [PROMPT]",
		Short: "Make one call through the queue",
		Long: `Make one call at the door, of a one-line prompt, or of a whole body from a file. The reply goes to stdout, as text on a terminal and
as the provider's JSON to a program; what llmq did for it goes to stderr. With --stream it comes as it is written, to a
program a line of JSON for each event.`,
		Example: "  llmq call 'hello, queue' --model chat-a --stream\n" +
			"  llmq call --op embed --model emb-a 'to be or not' | jq '.data[0].embedding'\n" +
			"  llmq call --file body.json --lane bg",
		Args: cobra.MaximumNArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error { return a.runCall(ctx, ask, args) }),
	}
	f := c.Flags()
	f.StringVar(&ask.op, "op", opChat, "chat, responses, converse, embed, or invoke with a --file in the model's own form")
	f.StringVarP(&ask.model, "model", "m", "", "alias of the model, or alias@target")
	f.StringVarP(&ask.file, "file", "f", "", "the body, as it is sent; - is stdin")
	f.BoolVarP(&ask.stream, "stream", "s", false, "show the reply while it comes")
	f.IntVar(&ask.maxTokens, "max-tokens", 0, "the reply's length; 0 says nothing of it")
	f.StringVar(&ask.lane, "lane", "", "rt, bg or bulk; rt where nothing is said")
	f.IntVar(&ask.timeoutSecs, "timeout-secs", 0, "until when it must be done; 0 is the lane's own")
	f.StringVar(&ask.fallback, "fallback", "", "chain or target: whether another model may stand in")
	f.BoolVar(&ask.submit, "submit", false, "leave the call and show its id; llmq request result fetches the reply within a day")
	f.BoolVarP(&ask.quiet, "quiet", "q", false, "with --submit: write the call's id and nothing else")
	f.StringVar(&ask.id, "id", "", "the call's id: a repeat takes up the call that runs, or gets its stored reply")
	// Its errors are those of a name that is no flag.
	_ = c.RegisterFlagCompletionFunc("model", a.completeModels)
	_ = c.RegisterFlagCompletionFunc("op", cobra.FixedCompletions(callOps(), cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("lane", cobra.FixedCompletions([]string{"rt", "bg", "bulk"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *app) runCall(ctx context.Context, ask calling, args []string) error {
	switch {
	case !slices.Contains(callOps(), ask.op):
		return usagef("--op is %q; it is one of %s", ask.op, strings.Join(callOps(), ", "))
	case ask.quiet && !ask.submit:
		return usagef("--quiet is for --submit: a reply is all that there is to see of another call")
	case ask.op == opInvoke && ask.file == "":
		return usagef("every model has a form of its own for --op invoke; give the body by --file")
	case ask.submit && ask.stream:
		return usagef("a call that is left is not streamed; leave out --stream")
	case ask.op == opEmbed && ask.stream:
		return usagef("an embedding comes whole; leave out --stream")
	case len(args) == 1 && ask.file != "" || len(args) == 0 && ask.file == "":
		return usagef("what to send? give a prompt, or --file with a body")
	}
	body, err := a.bodyOf(&ask, args)
	if err != nil {
		return err
	}
	door, err := a.door(ctx)
	if err != nil {
		return err
	}
	if ask.model == "" {
		return a.whichModel(ctx, door)
	}
	if ask.submit {
		return a.submit(ctx, door, ask, body)
	}
	resp, err := door.Do(ctx, http.MethodPost, ask.path(), ask.headers(), body)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // it was read to its end, or the read's error is returned
	if ask.stream {
		return a.stream(ctx, door, ask, resp)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return &remote.Unreachable{Host: door.Host(), Err: err}
	}
	a.meta(resp.Header)
	if reply := replyText(ask.op, text); a.tables() && reply != "" {
		_, err := fmt.Fprintln(a.out, reply)
		return err
	}
	return a.printJSON(text)
}

// bodyOf makes the body, or reads it and learns from it what the flags left out.
func (a *app) bodyOf(ask *calling, args []string) ([]byte, error) {
	if ask.file == "" {
		return json.Marshal(ask.body(args[0]))
	}
	body, err := a.read(ask.file)
	if err != nil {
		return nil, err
	}
	var says struct {
		Model  string
		Stream bool
	}
	switch {
	case json.Unmarshal(body, &says) != nil:
		if ask.file == "-" {
			return nil, usagef("stdin holds no JSON object")
		}
		return nil, usagef("%s holds no JSON object", ask.file)
	case ask.bedrock():
		return body, nil
	case ask.model != "" && ask.model != says.Model:
		return nil, usagef("the body names the model %q; it is sent as it is, so leave out --model", says.Model)
	case ask.stream && !says.Stream:
		return nil, usagef(`the body does not ask for a stream; it is sent as it is, so put "stream": true into it`)
	}
	ask.model, ask.stream = says.Model, says.Stream
	return body, nil
}

// read reads a file; - is stdin.
func (a *app) read(file string) ([]byte, error) {
	in := a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, usageError{err.Error()}
		}
		defer f.Close() // it is only read
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxBodyBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(text) > maxBodyBytes {
		return nil, usagef("%s has more than %d bytes", file, maxBodyBytes)
	}
	return text, nil
}

// body is a prompt as the op has it.
func (c calling) body(prompt string) map[string]any {
	switch c.op {
	case opEmbed:
		return map[string]any{"model": c.model, "input": prompt}
	case opConverse:
		b := map[string]any{"messages": []any{map[string]any{"role": "user", "content": []any{map[string]any{"text": prompt}}}}}
		if c.maxTokens > 0 {
			b["inferenceConfig"] = map[string]any{"maxTokens": c.maxTokens}
		}
		return b
	case opResponses:
		b := map[string]any{"model": c.model, "input": prompt}
		if c.maxTokens > 0 {
			b["max_output_tokens"] = c.maxTokens
		}
		if c.stream {
			b["stream"] = true
		}
		return b
	}
	b := map[string]any{"model": c.model, "messages": []any{map[string]any{"role": "user", "content": prompt}}}
	if c.maxTokens > 0 {
		b["max_tokens"] = c.maxTokens
	}
	if c.stream {
		b["stream"] = true
	}
	return b
}

func (c calling) path() string {
	switch {
	case c.op == opEmbed:
		return "/v1/embeddings"
	case c.op == opResponses:
		return "/v1/responses"
	case c.op == opConverse && c.stream:
		return "/model/" + url.PathEscape(c.model) + "/converse-stream"
	case c.op == opInvoke && c.stream:
		return "/model/" + url.PathEscape(c.model) + "/invoke-with-response-stream"
	case c.bedrock():
		return "/model/" + url.PathEscape(c.model) + "/" + c.op
	}
	return "/v1/chat/completions"
}

func (c calling) headers() http.Header {
	h := http.Header{}
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	set("X-LLMQ-Lane", c.lane)
	set("X-LLMQ-Fallback", c.fallback)
	set("Idempotency-Key", c.id)
	if c.timeoutSecs > 0 {
		set("X-LLMQ-Timeout-Secs", fmt.Sprint(c.timeoutSecs))
	}
	return h
}

// whichModel says which models there are.
func (a *app) whichModel(ctx context.Context, door *remote.Remote) error {
	names, err := modelsOf(ctx, door)
	if err != nil {
		return err
	}
	return usagef("which model? --model takes one of %s", strings.Join(names, ", "))
}

func modelsOf(ctx context.Context, door *remote.Remote) ([]string, error) {
	raw, err := door.Get(ctx, "/v1/models", nil)
	if err != nil {
		return nil, err
	}
	var models struct{ Data []struct{ ID string } }
	if err := json.Unmarshal(raw, &models); err != nil {
		return nil, fmt.Errorf("read the models: %w", err)
	}
	var names []string
	for _, m := range models.Data {
		names = append(names, m.ID)
	}
	return names, nil
}

// completeModels names the models to a shell.
func (a *app) completeModels(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	door, err := a.door(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, err := modelsOf(ctx, door)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// meta tells what llmq did for a call, by the headers of its answer.
func (a *app) meta(h http.Header) {
	if h.Get("X-LLMQ-Request-Id") == "" {
		fmt.Fprintln(a.err, a.note("it was not llmq that answered: there is no X-LLMQ-Request-Id", table.Warn))
		return
	}
	var parts []string
	usual := map[string]string{"X-LLMQ-Attempts": "1"} // says nothing
	say := func(format string, names ...string) {
		values := make([]any, len(names))
		for i, name := range names {
			value := h.Get(name)
			if value == "" || value == usual[name] {
				return
			}
			values[i] = value
		}
		parts = append(parts, fmt.Sprintf(format, values...))
	}
	say("%s@%s", "X-LLMQ-Model", "X-LLMQ-Target")
	say("%s", "X-LLMQ-Lane")
	say("attempts %s", "X-LLMQ-Attempts")
	say("queued %s ms", "X-LLMQ-Queue-Wait-Ms")
	say("provider %s ms", "X-LLMQ-Provider-Ms")
	if h.Get("X-LLMQ-Direct") == "true" {
		parts = append(parts, "without the queue")
	}
	say("%s", "X-LLMQ-Request-Id")
	a.say("%s", strings.Join(parts, " · "))
}

// replyText is what people read of a reply; "" where there is more to it than text.
func replyText(op string, reply []byte) string {
	switch op {
	case opConverse:
		var r struct {
			Output struct {
				Message struct{ Content []struct{ Text string } }
			}
		}
		if json.Unmarshal(reply, &r) != nil {
			return ""
		}
		var b strings.Builder
		for _, c := range r.Output.Message.Content {
			b.WriteString(c.Text)
		}
		return printable(b.String())
	case opInvoke:
		return "" // a form of the model's own
	case opResponses:
		var r struct {
			Output []struct{ Content []struct{ Text string } }
		}
		if json.Unmarshal(reply, &r) != nil {
			return ""
		}
		var b strings.Builder
		for _, part := range r.Output {
			for _, c := range part.Content {
				b.WriteString(c.Text)
			}
		}
		return printable(b.String())
	case opEmbed:
		var r struct {
			Data []struct{ Embedding []float64 }
		}
		if json.Unmarshal(reply, &r) != nil || len(r.Data) == 0 {
			return ""
		}
		v := r.Data[0].Embedding
		return fmt.Sprintf("a vector of %d numbers; --json shows them", len(v))
	}
	var r struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if json.Unmarshal(reply, &r) != nil || len(r.Choices) == 0 {
		return ""
	}
	return printable(r.Choices[0].Message.Content)
}

// printable leaves out what would steer the terminal: a model's text is a stranger's.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, s)
}
