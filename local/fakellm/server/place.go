package server

import (
	"errors"
	"strings"
)

// placed is an error that knows where in a Program it is, as the path of a JSON pointer without
// its first slash: "rules/0/phases/1/latency". Duplicate places are put together as they go up.
type placed struct {
	place string
	err   error
}

func (p placed) Error() string {
	if p.place == "" {
		return p.err.Error()
	}
	return readable(p.place) + ": " + p.err.Error()
}

func (p placed) Unwrap() error { return p.err }

// readable writes a place as people do: rules[0].phases[1].latency.
func readable(place string) string {
	var b strings.Builder
	for i, part := range strings.Split(place, "/") {
		switch {
		case part != "" && strings.Trim(part, "0123456789") == "":
			b.WriteString("[" + part + "]")
		case i > 0:
			b.WriteString("." + part)
		default:
			b.WriteString(part)
		}
	}
	return b.String()
}

// at gives an error, and each of those joined in it, its place below another.
func at(place string, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		moved := make([]error, 0, len(joined.Unwrap()))
		for _, each := range joined.Unwrap() {
			moved = append(moved, at(place, each))
		}
		return errors.Join(moved...)
	}
	if inner, ok := err.(placed); ok { //nolint:errorlint // a place that was wrapped has been told already
		if place != "" && inner.place != "" {
			place += "/"
		}
		return placed{place + inner.place, inner.err}
	}
	return placed{place, err}
}
