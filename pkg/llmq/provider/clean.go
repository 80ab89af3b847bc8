package provider

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxMessage is how many characters of a provider's message are passed on.
const MaxMessage = 512

// removed stands where a key stood.
const removed = "[key removed]"

// keyShape matches what secrets of the vendors that we know look like, our own included. It can't
// know them all: an adapter also removes the very key that it sent.
var keyShape = regexp.MustCompile(`(?i:\bbearer\s+[a-z0-9._~+/=*-]{8,})` + // any token, where its scheme is repeated
	`|\b(?:sk|pk|rk|sess|xai|pplx)-[A-Za-z0-9_*-]{8,}` + // OpenAI, Anthropic, OpenRouter; * is their own masking
	`|\b(?:gsk|hf|nvapi)[_-][A-Za-z0-9_-]{8,}` + // Groq, Hugging Face, NVIDIA
	`|\bAIza[A-Za-z0-9_-]{16,}` + // Google
	`|\b(?:AKIA|ASIA)[A-Z0-9]{12,}` + // AWS access key ids
	`|\bABSK[A-Za-z0-9+/=]{8,}` + // Bedrock API keys, long-lived
	`|\bbedrock-api-key-[A-Za-z0-9+/=_-]{8,}` + // and short-lived
	`|\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)*` + // JSON web tokens
	`|(?i:\bsignature=[0-9a-f]{16,})` + // SigV4
	`|\bllmq_[A-Za-z0-9_]{16,}`)

// CleanMessage makes a provider's message fit for a caller and a log: at most [MaxMessage]
// characters on one line, valid UTF-8, without control and invisible characters, and without
// anything that has the shape of a key. Secrets that the caller knows are removed whatever their
// shape; those of less than eight characters are ignored, since they would tear words apart.
func CleanMessage(s string, secrets ...string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r): // line separators too
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r): // Cf: zero width, bidi overrides
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	for _, secret := range secrets {
		if len(secret) >= 8 {
			s = strings.ReplaceAll(s, secret, removed)
		}
	}
	// The whole text is searched before it is clipped, or half a key could be left at its end.
	s = strings.TrimSpace(removeKeys(s))
	if utf8.RuneCountInString(s) <= MaxMessage {
		return s
	}
	return string([]rune(s)[:MaxMessage-1]) + "…"
}

// CleanToken keeps the visible ASCII characters of a short machine word of the provider's, such as
// a request id or an error code, and at most n of them.
func CleanToken(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
	s = removeKeys(s)
	return s[:min(len(s), n)]
}

// removeKeys repeats, since the end of one key can be what hid the beginning of the next.
func removeKeys(s string) string {
	for keyShape.MatchString(s) {
		s = keyShape.ReplaceAllString(s, removed)
	}
	return s
}
