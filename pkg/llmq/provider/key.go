package provider

import "strings"

// ValidKey reports whether key can be sent in a header: visible ASCII, at least one character. A
// key with a line break could otherwise add headers of its own.
func ValidKey(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' })
}
