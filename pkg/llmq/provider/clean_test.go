package provider_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

func TestCleanMessage_RemovesKeysAndControls(t *testing.T) {
	t.Parallel()
	const removed = "[key removed]"
	tests := []struct{ name, in, want string }{
		{"plain", "Invalid 'messages': empty array.", "Invalid 'messages': empty array."},
		{"empty", "", ""},
		{"lines become spaces", "a\r\nb\tc", "a  b c"},
		{"line separator", "a\u2028b", "a b"},
		{"controls and escapes", "\x1b[31mred\x00\x7f", "[31mred"},
		{"bidi override and zero width", "a\u202eb\u200bc", "abc"},
		{"bad UTF-8", "a\xffb", "a\uFFFDb"},
		{"OpenAI key", "Incorrect API key provided: sk-proj-abcdEFGH12345678_x-9.", "Incorrect API key provided: " + removed + "."},
		{"masked OpenAI key", "key sk-proj-********************abcd", "key " + removed},
		{"bearer", "got 'Bearer abcdefgh.ijkl-mnop'", "got '" + removed + "'"},
		{"bearer in small letters", "authorization: bearer   0123456789abcdef", "authorization: " + removed},
		{"AWS access key id", "The key AKIAIOSFODNN7EXAMPLE is invalid", "The key " + removed + " is invalid"},
		{"AWS session key id", "ASIAIOSFODNN7EXAMPLE", removed},
		{"Bedrock key", "ABSKQmVkcm9ja0FQSUtleS1hYmNk=", removed},
		{"short-lived Bedrock key", "bedrock-api-key-YmVkcm9jay5hbWF6b25hd3M=", removed},
		{"our own key", "llmq_prod_0123456789_abcdefghijklmnop_a1b2c3", removed},
		{"key cut by a zero byte", "sk-ab\x00cdefghij12", removed},
		{"two keys", "sk-aaaaaaaa1 gsk_bbbbbbbb2", removed + " " + removed},
		{"key that hides the next", "AKIAIOSFODNN7EXAMPLEsk-abcdefgh1", removed + removed},
		{"web token", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig", removed},
		{"words that only look so", "task-management and risk-assessment, llmq_lane, bearer of news", "task-management and risk-assessment, llmq_lane, bearer of news"},
		{"exactly the limit", strings.Repeat("é", provider.MaxMessage), strings.Repeat("é", provider.MaxMessage)},
		{"over the limit", strings.Repeat("é", provider.MaxMessage+1), strings.Repeat("é", provider.MaxMessage-1) + "…"},
		{"key across the limit", strings.Repeat("x ", 253) + "sk-abcdefghijkl", strings.Repeat("x ", 253) + "[key …"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := provider.CleanMessage(tt.in); got != tt.want {
				t.Errorf("CleanMessage(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

func TestCleanMessage_RemovesKnownSecrets(t *testing.T) {
	t.Parallel()
	const in = "Invalid key 0123456789abcdef for tenant ab."
	if got, want := provider.CleanMessage(in, "0123456789abcdef", "ab", ""), "Invalid key [key removed] for tenant ab."; got != want {
		t.Errorf("CleanMessage(%q) = %q, want %q", in, got, want)
	}
}

func TestCleanToken_KeepsVisibleASCII(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		n        int
		want     string
	}{
		{"request id", "req_0123-abc", 128, "req_0123-abc"},
		{"controls, spaces, other letters", "a\r\nb\x00 c\u00e9", 128, "abc"},
		{"clipped", "abcdef", 3, "abc"},
		{"key", "sk-abcdefgh12", 128, "[key removed]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := provider.CleanToken(tt.in, tt.n); got != tt.want {
				t.Errorf("CleanToken(%q, %d) = %q, want %q", tt.in, tt.n, got, tt.want)
			}
		})
	}
}

func FuzzCleanMessage(f *testing.F) {
	for _, s := range []string{"", "plain", "sk-abcdefgh1", "Bearer Bearer abcdefgh1", "sk-\x00abcdefgh", "AKIAIOSFODNN7EXAMPLEsk-abcdefgh1", "\xff\xfe", "AKIAIOSFODNN7EXAMPLE", strings.Repeat("sk-abcdefgh ", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := provider.CleanMessage(s)
		if !utf8.ValidString(got) {
			t.Errorf("CleanMessage(%q) = %q, not UTF-8", s, got)
		}
		if n := utf8.RuneCountInString(got); n > provider.MaxMessage {
			t.Errorf("CleanMessage(%q) has %d characters", s, n)
		}
		if strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("CleanMessage(%q) = %q holds a control character", s, got)
		}
		if again := provider.CleanMessage(got); again != got {
			t.Errorf("CleanMessage(%q) = %q, and once more %q: something was left", s, got, again)
		}
	})
}
