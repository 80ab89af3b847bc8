package openai

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func readAll(t *testing.T, r io.Reader, most int) ([]string, error) {
	t.Helper()
	s := newSSEReader(r, most)
	var got []string
	for {
		e, err := s.next()
		if err != nil {
			return got, err
		}
		got = append(got, e.name+"|"+string(e.data))
	}
}

func TestSSEReader_ReadsAsTheStandardSays(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in   string
		want []string
	}{
		"line feeds":         {"data: a\n\ndata: b\n\n", []string{"|a", "|b"}},
		"both":               {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"|a", "|b"}},
		"carriage returns":   {"data: a\r\rdata: b\r\r", []string{"|a", "|b"}},
		"no space, two":      {"data:a\n\ndata:  b\n\n", []string{"|a", "| b"}},
		"several lines":      {"data: a\ndata\ndata: b\n\n", []string{"|a\n\nb"}},
		"names":              {"event: x\ndata: a\n\ndata: b\n\nevent: y\n\ndata: c\n\n", []string{"x|a", "|b", "|c"}},
		"other fields":       {"id: 7\nretry: 9\nfoo\n: c\ndata: a\n\n", []string{"|a"}},
		"byte order mark":    {"\xef\xbb\xbfdata: a\n\n", []string{"|a"}},
		"half an event":      {"data: a\n\ndata: b\n", []string{"|a"}},
		"half a line":        {"data: a\n\ndata: b", []string{"|a"}},
		"mark without end":   {"data: a\n\ndata: [DONE]", []string{"|a", "|[DONE]"}},
		"mark after another": {"data: a\ndata: [DONE]", nil},
		"nothing":            {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := readAll(t, iotest.OneByteReader(bytes.NewBufferString(tc.in)), 100)
			if diff := cmp.Diff(tc.want, got); diff != "" || !errors.Is(err, io.EOF) {
				t.Errorf("events (-want +got):\n%s%v", diff, err)
			}
		})
	}
}

func TestSSEReader_BoundsAnEvent(t *testing.T) {
	t.Parallel()
	for in, events := range map[string]int{
		"data: 0123456789\n\n": 1, "data: 0123456789a\n\n": 0, "data: 01234\ndata: 56789\n\n": 0, ": a comment of more\n\n": 0, "data: 01234\ndata: 5678\n\n": 1,
	} {
		got, err := readAll(t, bytes.NewBufferString(in), 10)
		if want := events == 1; len(got) != events || errors.Is(err, errEventTooLarge) == want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

// However the bytes are cut the events are the same, and what is framed again reads the same.
func FuzzSSEReader(f *testing.F) {
	for _, s := range []string{"data: a\n\n", "data: a\r\n\r\n", "\xef\xbb\xbfevent: x\rdata: {}\r\r", ": c\n\ndata: [DONE]", "data\ndata\n\n", "data: a\n\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, err := readAll(t, bytes.NewReader(in), 1000)
		pieces, pieceErr := readAll(t, iotest.OneByteReader(bytes.NewReader(in)), 1000)
		if diff := cmp.Diff(whole, pieces); diff != "" || !errors.Is(pieceErr, err) {
			t.Fatalf("cut (-whole +cut):\n%s%v, %v", diff, err, pieceErr)
		}
		s := newSSEReader(bytes.NewReader(in), 1000)
		for {
			e, err := s.next()
			if err != nil {
				return
			}
			data := bytes.Clone(e.data)
			again, err := newSSEReader(bytes.NewReader(appendSSE(nil, "", data)), 2000).next()
			if err != nil || !bytes.Equal(again.data, data) {
				t.Fatalf("%q reads again as %q, %v", data, again.data, err)
			}
		}
	})
}
