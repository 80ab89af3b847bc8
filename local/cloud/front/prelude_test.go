package front

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadPrelude_AnyCutOfTheReply(t *testing.T) {
	t.Parallel()
	text := `{"statusCode":200,"headers":{"a":"b"}}` + nuls + "\x00body"
	for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
		p, first, err := readPrelude(r)
		if err != nil || p.StatusCode != 200 || p.Headers["a"] != "b" {
			t.Fatalf("got %+v, %v", p, err)
		}
		rest, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(first) + string(rest); got != "\x00body" {
			t.Errorf("body %q", got)
		}
	}
}

func FuzzReadPrelude(f *testing.F) {
	f.Add([]byte(ok))
	f.Add([]byte(`{"statusCode":200}` + nuls + "body"))
	f.Add([]byte(nuls))
	f.Add([]byte(`{"statusCode":1e2}` + nuls))
	f.Add([]byte(`{"statusCode":200,"headers":null}` + nuls[:7]))
	f.Fuzz(func(t *testing.T, reply []byte) {
		p, body, err := readPrelude(bytes.NewReader(reply))
		if err != nil {
			return
		}
		if p.StatusCode < 200 || p.StatusCode > 599 {
			t.Errorf("status %d accepted", p.StatusCode)
		}
		if !bytes.Contains(reply, append([]byte(nuls), body...)) {
			t.Errorf("body %q does not follow the delimiter in %q", body, reply)
		}
	})
}
