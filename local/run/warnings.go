package main

import (
	"bytes"
	"io"
)

// warnings passes on what functions log as a warning or worse, and what a program prints
// as it dies. It is written to line by line.
type warnings struct{ to io.Writer }

// Write implements io.Writer.
func (w warnings) Write(line []byte) (int, error) {
	for _, sign := range []string{`"level":"WARN"`, `"level":"ERROR"`, "panic:", "fatal error:"} {
		if bytes.Contains(line, []byte(sign)) {
			return w.to.Write(line)
		}
	}
	return len(line), nil
}
