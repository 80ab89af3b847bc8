package server

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/llm-queue/llmq/local/fakellm/quota"
)

// The types of this file are the text form of programs, for the admin API and for files.

// millis is a duration on the admin wire.
type millis float64

// duration is unchecked but for what a duration can't hold.
func (m millis) duration() time.Duration {
	const most = millis(1<<62) / 1e6
	return time.Duration(float64(min(max(m, -most), most)) * float64(time.Millisecond))
}

func newMillis(d time.Duration) millis { return millis(float64(d) / float64(time.Millisecond)) }

// decodeStrict reads one JSON value with no member that v doesn't have. Its errors are placed.
func decodeStrict(data []byte, v any) error {
	err := json.Unmarshal(data, v, json.RejectUnknownMembers(true))
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		message := semantic.Err
		switch {
		case errors.Is(err, json.ErrUnknownName):
			message = errors.New("there is no such field")
		case message == nil || errors.Is(message, strconv.ErrSyntax): // the latter of a number with a fraction
			message = unwanted(semantic)
		}
		return placed{pointerPlace(semantic.JSONPointer), message}
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return placed{pointerPlace(syntactic.JSONPointer), fmt.Errorf("at byte %d: %w", syntactic.ByteOffset, syntactic.Err)}
	}
	return err
}

// unwanted says what was found and what is wanted in its place.
func unwanted(e *json.SemanticError) error {
	found := map[jsontext.Kind]string{'{': "fields", '[': "a list", '0': "a number", '"': "a text", 't': "true", 'f': "false", 'n': "null"}[e.JSONKind]
	if e.JSONValue != nil && len(e.JSONValue) <= 40 {
		found = string(e.JSONValue)
	}
	wanted := "something else"
	switch e.GoType {
	case reflect.TypeFor[rateJSON](), reflect.TypeFor[rateMembers]():
		unit := "calls"
		if e.JSONPointer.LastToken() == "tpm" {
			unit = "tokens"
		}
		wanted = "a number of " + unit + " per minute, or {quota: that number} with burst, window, skew_ms or count_refused"
	case reflect.TypeFor[millis]():
		wanted = "milliseconds as a number (3 s are 3000)"
	case reflect.TypeFor[latencyJSON]():
		wanted = "{mean_ms: milliseconds as a number} with other fields of a latency (3 s are {mean_ms: 3000})"
	default:
		if e.GoType != nil {
			wanted = wantedKind(e.GoType.Kind(), wanted)
		}
	}
	return fmt.Errorf("%s: want %s", found, wanted)
}

func wantedKind(k reflect.Kind, other string) string {
	switch k {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "fields with names"
	default:
		return other
	}
}

func pointerPlace(p jsontext.Pointer) string {
	place := ""
	for token := range p.Tokens() {
		if place != "" {
			place += "/"
		}
		place += token
	}
	return place
}

type matchJSON struct {
	Model  string `json:"model"`
	Region string `json:"region"`
	Key    string `json:"key"`
}

func (m matchJSON) match() Match { return Match(m) }

type latencyJSON struct {
	Distribution   Distribution `json:"distribution"`
	MeanMs         millis       `json:"mean_ms"`
	DeviationMs    millis       `json:"deviation_ms"`
	MinMs          millis       `json:"min_ms"`
	MaxMs          millis       `json:"max_ms"`
	Speed          float64      `json:"speed"`
	SpeedDeviation float64      `json:"speed_deviation"`
	InputSpeed     float64      `json:"input_speed"`
	Seed           uint64       `json:"seed"`
}

func (in latencyJSON) latency() Latency {
	return Latency{
		Distribution: in.Distribution, Mean: in.MeanMs.duration(), Deviation: in.DeviationMs.duration(),
		Min: in.MinMs.duration(), Max: in.MaxMs.duration(),
		Speed: in.Speed, SpeedDeviation: in.SpeedDeviation, InputSpeed: in.InputSpeed, Seed: in.Seed,
	}
}

type toolCallJSON struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type replyJSON struct {
	Status       int               `json:"status"`
	Code         string            `json:"code"`
	Message      string            `json:"message"`
	Headers      map[string]string `json:"headers"`
	Body         *string           `json:"body"`
	BodyBase64   *[]byte           `json:"body_base64"`
	ChunksBase64 [][]byte          `json:"chunks_base64"`
	Text         *string           `json:"text"`
	ToolCalls    []toolCallJSON    `json:"tool_calls"`
	DelayMs      millis            `json:"delay_ms"`
	Hang         bool              `json:"hang"`
	Reset        bool              `json:"reset"`
	Fail         Failure           `json:"fail"`
	After        int               `json:"after"`
	PauseMs      millis            `json:"pause_ms"`
	Size         int               `json:"size"`
	Times        int               `json:"times"`
}

func (in replyJSON) reply() (Reply, error) {
	out := Reply{
		Status: in.Status, Code: in.Code, Message: in.Message, Chunks: in.ChunksBase64, Text: in.Text,
		Delay: in.DelayMs.duration(), Hang: in.Hang, Reset: in.Reset,
		Fail: in.Fail, After: in.After, Pause: in.PauseMs.duration(), Size: in.Size, Times: in.Times,
	}
	for _, t := range in.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, ToolCall(t))
	}
	switch {
	case in.Body != nil && in.BodyBase64 != nil:
		return Reply{}, at("body", errors.New("body and body_base64: want one of them"))
	case in.Body != nil:
		out.Body = []byte(*in.Body)
	case in.BodyBase64 != nil:
		out.Body = *in.BodyBase64
	}
	if len(in.Headers) > 0 {
		out.Header = http.Header{}
		for name, value := range in.Headers {
			out.Header.Set(name, value)
		}
	}
	return out, nil
}

type queuedJSON struct {
	Match   matchJSON   `json:",embed"`
	Replies []replyJSON `json:"replies"`
}

func (in queuedJSON) queued() (Queued, error) {
	if len(in.Replies) == 0 {
		return Queued{}, at("replies", errors.New("want at least one"))
	}
	out := Queued{Match: in.Match.match()}
	for i, each := range in.Replies {
		r, err := each.reply()
		if err == nil {
			err = r.validate()
		}
		if err != nil {
			return Queued{}, at("replies/"+itoa(i), err)
		}
		out.Replies = append(out.Replies, r)
	}
	return out, nil
}

// rateJSON is a number a minute, or an object.
type rateJSON struct {
	Quota        float64      `json:"quota"`
	Burst        float64      `json:"burst"`
	Window       quota.Window `json:"window"`
	SkewMs       millis       `json:"skew_ms"`
	CountRefused bool         `json:"count_refused"`
}

func (in *rateJSON) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '0' { // any number
		return json.UnmarshalDecode(d, &in.Quota)
	}
	return json.UnmarshalDecode(d, (*rateMembers)(in))
}

// rateMembers is a rateJSON without its method.
type rateMembers rateJSON

func (in rateJSON) rate() quota.Rate {
	return quota.Rate{PerMinute: in.Quota, Burst: in.Burst, Window: in.Window, Skew: in.SkewMs.duration(), CountRefused: in.CountRefused}
}

type retryAfterJSON struct {
	Form    RetryForm `json:"form"`
	Value   string    `json:"value"`
	FixedMs millis    `json:"fixed_ms"`
}

type spreadJSON struct {
	Distribution Distribution `json:"distribution"`
	Mean         float64      `json:"mean"`
	Deviation    float64      `json:"deviation"`
	Min          float64      `json:"min"`
	Max          float64      `json:"max"`
}

type faultJSON struct {
	Share *float64  `json:"share"`
	Reply replyJSON `json:",embed"`
}

type phaseJSON struct {
	ForMs            millis         `json:"for_ms"`
	Scale            *[2]float64    `json:"scale"`
	Concurrency      int            `json:"concurrency"`
	RPM              rateJSON       `json:"rpm"`
	TPM              rateJSON       `json:"tpm"`
	Charge           quota.Charge   `json:"charge"`
	Burndown         float64        `json:"burndown"`
	DefaultMaxTokens int            `json:"default_max_tokens"`
	ThrottleShare    float64        `json:"throttle_share"`
	Throttle         replyJSON      `json:"throttle"`
	RetryAfter       retryAfterJSON `json:"retry_after"`
	RefuseDelayMs    millis         `json:"refuse_delay_ms"`
	Latency          latencyJSON    `json:"latency"`
	OutputTokens     spreadJSON     `json:"output_tokens"`
	ContextTokens    int            `json:"context_tokens"`
	Faults           []faultJSON    `json:"faults"`
}

func (in phaseJSON) phase() (Phase, error) {
	out := Phase{
		For: in.ForMs.duration(),
		Limits: quota.Limits{
			Concurrency: in.Concurrency, Requests: in.RPM.rate(), Tokens: in.TPM.rate(),
			Charge: in.Charge, Burndown: in.Burndown, DefaultMaxTokens: in.DefaultMaxTokens,
		},
		ThrottleShare: in.ThrottleShare,
		RetryAfter:    RetryAfter{Form: in.RetryAfter.Form, Value: in.RetryAfter.Value, Fixed: in.RetryAfter.FixedMs.duration()},
		RefuseDelay:   in.RefuseDelayMs.duration(),
		Latency:       in.Latency.latency(),
		OutputTokens:  Spread(in.OutputTokens),
		ContextTokens: in.ContextTokens,
	}
	if in.Scale != nil {
		out.From, out.To = in.Scale[0], in.Scale[1]
	}
	var err error
	if out.Throttle, err = in.Throttle.reply(); err != nil {
		return Phase{}, at("throttle", err)
	}
	for i, f := range in.Faults {
		r, err := f.Reply.reply()
		if err == nil && f.Share == nil {
			err = errors.New("want a share of the calls, 0 to 1")
		}
		if err != nil {
			return Phase{}, at("faults/"+itoa(i), err)
		}
		out.Faults = append(out.Faults, Fault{Share: *f.Share, Reply: r})
	}
	return out, nil
}

type ruleJSON struct {
	Match  matchJSON   `json:",embed"`
	Per    []Dimension `json:"per"`
	Loop   bool        `json:"loop"`
	Seed   uint64      `json:"seed"`
	Phases []phaseJSON `json:"phases"`
}

func (in ruleJSON) rule() (Rule, error) {
	out := Rule{Match: in.Match.match(), Per: in.Per, Loop: in.Loop, Seed: in.Seed}
	for i, each := range in.Phases {
		p, err := each.phase()
		if err != nil {
			return Rule{}, at("phases/"+itoa(i), err)
		}
		out.Phases = append(out.Phases, p)
	}
	return out, nil
}

type programJSON struct {
	Rules []ruleJSON   `json:"rules"`
	Queue []queuedJSON `json:"queue"`
}

func (in programJSON) program() (Program, error) {
	var out Program
	for i, each := range in.Rules {
		r, err := each.rule()
		if err != nil {
			return Program{}, at("rules/"+itoa(i), err)
		}
		out.Rules = append(out.Rules, r)
	}
	for i, each := range in.Queue {
		q, err := each.queued()
		if err != nil {
			return Program{}, at("queue/"+itoa(i), err)
		}
		out.Queue = append(out.Queue, q)
	}
	return out, out.validate()
}
