package server

import "unicode/utf8"

// bytesPerToken is the whole tokenizer.
const bytesPerToken = 4

// Tokens is how many tokens a text counts as: one for every four bytes of UTF-8, rounded up, and
// none for an empty text. A request's tokens are those of all its texts put together.
func Tokens(text string) int { return tokens(len(text)) }

func tokens(bytes int) int { return (bytes + bytesPerToken - 1) / bytesPerToken }

// truncate cuts a text to limit tokens, at a character's border, and says whether it had to.
// A limit of 0 is none.
func truncate(text string, limit int) (cut string, truncated bool) {
	if limit <= 0 || Tokens(text) <= limit {
		return text, false
	}
	end := limit * bytesPerToken
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end], true
}

// echo is what a model answers to the last text of a user.
func echo(model, text string) string { return "[" + model + "] " + text }
