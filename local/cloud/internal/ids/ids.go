// Package ids makes the random ids that AWS services put on what they create.
package ids

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// UUID returns a random (version 4) UUID, the form of request ids and event source mappings.
func UUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// Hex returns n random bytes as 2n hexadecimal digits.
func Hex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: it ends the program instead
	return hex.EncodeToString(b)
}
