// Package secrets turns references to secrets into their values, and holds values
// so that no log, error or JSON shows them (SECURITY-DESIGN DP6).
package secrets

import (
	"crypto/subtle"
	"fmt"
	"log/slog"
)

// redacted is what a secret looks like wherever it is printed.
const redacted = "[redacted]"

// Secret holds a value that only [Secret.Reveal] gives away. The zero value holds
// none. It is safe for concurrent use.
type Secret struct {
	// A pointer, because fmt prints an unexported field of somebody else's struct by
	// reflection, past every method below; of a pointer it shows the address alone.
	value *string
}

// New holds a value.
func New(value string) Secret { return Secret{value: &value} }

// Reveal is the value, for the one place that sends or compares it; "" for the zero
// Secret.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsZero reports whether there is no value.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

// Equal compares two values in a time that tells nothing but their lengths. A zero
// Secret equals none, not even another.
func (s Secret) Equal(o Secret) bool {
	return !s.IsZero() && subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(o.Reveal())) == 1
}

// String redacts.
func (s Secret) String() string { return redacted }

// GoString redacts.
func (s Secret) GoString() string { return redacted }

// Format redacts under every verb, those that print bytes in hexadecimal too.
func (s Secret) Format(f fmt.State, _ rune) {
	_, _ = f.Write([]byte(redacted)) // fmt's own state takes every write
}

// LogValue redacts.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON redacts.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText redacts, for the encodings that ask for text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
