package server

import (
	"strings"
	"unicode/utf8"
)

const (
	// bytesPerToken is the whole tokenizer.
	bytesPerToken = 4
	// maxPieces bounds the events that one text is streamed in.
	maxPieces = 2000
	// maxAnswerBytes bounds the text of all choices of one answer.
	maxAnswerBytes = 32 << 20
)

// Tokens is how many tokens a text counts as: one for every four bytes of UTF-8, rounded up, and
// none for an empty text. A request's tokens are those of all its texts put together.
func Tokens(text string) int { return tokens(len(text)) }

func tokens(bytes int) int { return (bytes + bytesPerToken - 1) / bytesPerToken }

// ToolCall is a call of a tool that a programmed answer makes.
type ToolCall struct {
	// ID is made up if empty.
	ID   string
	Name string
	// Arguments are JSON text, an object where the wire wants one.
	Arguments string
}

// completion is what the model says, before it has a wire's shape.
type completion struct {
	text   string // empty if there are tools
	tools  []ToolCall
	cut    bool // max_tokens was reached
	input  int  // tokens
	output int  // tokens of one choice
	// whole streams everything in one event.
	whole bool
}

// complete makes the answer to a. length is the number of tokens to make it; 0 is as it comes.
func complete(a ask, r Reply, length int, id string) completion {
	c := completion{input: a.input, whole: r.Fail == FailHugeLine}
	if a.silent {
		return c
	}
	c.tools = r.tools(id)
	if len(c.tools) > 0 {
		bytes := 0
		for _, t := range c.tools {
			bytes += len(t.Name) + len(t.Arguments)
		}
		c.output = tokens(bytes)
		return c
	}
	c.text = "[" + a.model + "] " + a.lastUser
	if r.Text != nil {
		c.text = *r.Text
	}
	if length > 0 {
		c.text = stretch(c.text, length)
	}
	limit := maxAnswerBytes / bytesPerToken / max(1, a.choices)
	if a.maxTokens > 0 {
		limit = min(limit, a.maxTokens)
	}
	c.text, c.cut = truncate(c.text, limit)
	c.output = Tokens(c.text)
	return c
}

// stretch makes a text exactly so many tokens long, give or take a cut character.
func stretch(text string, length int) string {
	if missing := length - Tokens(text); missing > 0 {
		return text + strings.Repeat(" and", missing)
	}
	text, _ = truncate(text, length)
	return text
}

// truncate cuts a text to limit tokens, at a character's border, and says whether it had to.
func truncate(text string, limit int) (cut string, truncated bool) {
	if Tokens(text) <= limit {
		return text, false
	}
	end := limit * bytesPerToken
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end], true
}

// pieces splits a text at characters' borders into what a stream sends one by one: a token each,
// or more if the text is long, or all of it if it is to be whole.
func (c completion) pieces(text string) []string {
	if c.whole || text == "" {
		return []string{text}
	}
	size := max(bytesPerToken, (len(text)+maxPieces-1)/maxPieces)
	all := make([]string, 0, len(text)/size+1)
	for text != "" {
		end := min(size, len(text))
		for end < len(text) && !utf8.RuneStart(text[end]) {
			end++
		}
		all = append(all, text[:end])
		text = text[end:]
	}
	return all
}
