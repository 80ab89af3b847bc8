package main

import (
	"bytes"
	"io"
	"sync"
)

// warnings passes on what a program prints as it dies. That functions log warnings, or worse,
// it says once: their lines are for machines, and -v shows them. It is written to line by
// line; its methods may be called at the same time.
type warnings struct {
	to   io.Writer
	told *sync.Once
}

const someWarn = "· functions log warnings or errors; run with -v (make run RUNFLAGS=-v) to see them\n"

// Write implements io.Writer.
func (w warnings) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(`"level":"WARN"`)) || bytes.Contains(line, []byte(`"level":"ERROR"`)) {
		var err error
		w.told.Do(func() { _, err = io.WriteString(w.to, someWarn) })
		return len(line), err
	}
	for _, sign := range []string{"panic:", "fatal error:"} {
		if bytes.Contains(line, []byte(sign)) {
			return w.to.Write(line)
		}
	}
	return len(line), nil
}
