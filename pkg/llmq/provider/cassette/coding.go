package cassette

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

var (
	errCoding     = errors.New("refused: a body is compressed in a way that can't be searched for secrets")
	errUndeclared = errors.New("refused: a body begins as compressed data do, so it can't be searched for secrets")
)

// decoded is a request's or a reply's body without its Content-Encoding, as it is searched and
// stored. Any coding but one gzip is refused, and so is gzip that is cut off or followed by something
// else. What is compressed without saying so is refused by [unfit].
func decoded(body []byte, header http.Header) ([]byte, error) {
	var codings []string
	for name, values := range header {
		if !strings.EqualFold(name, "Content-Encoding") {
			continue
		}
		for coding := range strings.SplitSeq(strings.Join(values, ","), ",") {
			coding = strings.ToLower(strings.TrimSpace(coding))
			if coding != "" && coding != "identity" {
				codings = append(codings, coding)
			}
		}
	}
	switch {
	case len(body) == 0 || len(codings) == 0: // a reply to HEAD may tell a coding, and has no body
	case len(codings) == 1 && (codings[0] == "gzip" || codings[0] == "x-gzip"):
		plain, err := gunzip(body)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errCoding, err)
		}
		body = plain
	default:
		return nil, errCoding
	}
	return body, nil
}

// compressed reports whether b begins with what gzip, zstd, xz, lz4, bzip2, zip or zlib data begin
// with. Brotli and bare deflate have no such mark.
func compressed(b []byte) bool {
	for _, magic := range []string{"\x1f\x8b", "\x28\xb5\x2f\xfd", "\xfd7zXZ\x00", "\x04\x22\x4d\x18", "PK\x03\x04", "x\x01", "x\x9c", "x\xda"} {
		if bytes.HasPrefix(b, []byte(magic)) {
			return true
		}
	}
	// Text may begin with these.
	return (bytes.HasPrefix(b, []byte("BZh")) || bytes.HasPrefix(b, []byte("x^"))) && !utf8.Valid(b)
}
