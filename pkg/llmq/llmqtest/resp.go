package llmqtest

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// respValue is what a [Wire] keeps of one RESP value.
type respValue struct {
	kind  byte     // its first byte
	words []string // its leading strings, in lower case; of a nested value none
}

// isReply tells an answer from what a server says unasked. In RESP3 the answers to SUBSCRIBE
// and UNSUBSCRIBE are pushes too.
func (v respValue) isReply() bool {
	if len(v.words) > 0 && v.words[0] == "message" && (v.kind == '>' || v.kind == '*') {
		return false
	}
	return v.kind != '>' || len(v.words) > 0 && slices.Contains([]string{"subscribe", "unsubscribe"}, v.words[0])
}

// maxWord bounds what is kept of a string: names of commands are shorter.
const maxWord = 32

// maxLength bounds a value; stores have the same bound.
const maxLength = 512 << 20

// readRESP reads one value of RESP 2 or 3, and appends its bytes to raw.
func readRESP(in *bufio.Reader, raw *[]byte) (respValue, error) {
	line, err := in.ReadString('\n')
	*raw = append(*raw, line...)
	if err != nil {
		return respValue{}, err
	}
	head := strings.TrimRight(line, "\r\n")
	if head == "" {
		return respValue{}, fmt.Errorf("an empty line where a value begins")
	}
	v := respValue{kind: head[0]}
	switch v.kind {
	case '+', '-', ':', '_', '#', ',', '(':
		return v, nil
	case '$', '!', '=', '*', '%', '~', '>':
	default:
		return v, fmt.Errorf("%q begins no value", v.kind)
	}
	n, err := strconv.Atoi(head[1:])
	if err != nil {
		return v, fmt.Errorf("length of a value: %w", err)
	}
	if n < 0 {
		return v, nil // nil of RESP 2
	}
	if n > maxLength {
		return v, fmt.Errorf("a value of length %d", n)
	}
	if strings.IndexByte("$!=", v.kind) >= 0 {
		body := make([]byte, n+2)
		if _, err := io.ReadFull(in, body); err != nil {
			return v, err
		}
		*raw = append(*raw, body...)
		v.words = []string{strings.ToLower(string(body[:min(n, maxWord)]))}
		return v, nil
	}
	if v.kind == '%' {
		n *= 2
	}
	for i := range n {
		item, err := readRESP(in, raw)
		if err != nil {
			return v, err
		}
		if i == len(v.words) && item.kind == '$' {
			v.words = append(v.words, item.words...)
		}
	}
	return v, nil
}
