package sqs

import "testing"

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// E9: what SQS carries a trace in is X-Ray's form of it, there and back.
func TestTraceHeader_IsXRays(t *testing.T) {
	t.Parallel()
	const header = "Root=1-0af76519-16cd43dd8448eb211c80319c;Parent=b7ad6b7169203331;Sampled="
	for from, want := range map[string]string{
		traceparent: header + "1", traceparent[:53] + "00": header + "0", "": "", "tr": "",
	} {
		if got := traceHeader(from); got != want {
			t.Errorf("%q: %q, want %q", from, got, want)
		}
		if back := Traceparent(want); want != "" && back != from {
			t.Errorf("%q is read back as %q", want, back)
		}
	}
}

func TestTraceparent_IgnoresWhatNamesNoSpan(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"Root=1-0af76519-16cd43dd8448eb211c80319c;Parent=b7ad6b7169203331;Sampled=1;Lineage=1:abc:0": traceparent,
		" Parent=b7ad6b7169203331 ; Sampled=1; Root=1-0af76519-16cd43dd8448eb211c80319c":             traceparent,
		"Root=1-0af76519-16cd43dd8448eb211c80319c":                                                   "",
		"Root=2-0af76519-16cd43dd8448eb211c80319c;Parent=b7ad6b7169203331;Sampled=1":                 "",
		"Root=1-0af765-1916cd43dd8448eb211c80319c;Parent=b7ad6b7169203331;Sampled=1":                 "",
		"Root=1-00000000-000000000000000000000000;Parent=b7ad6b7169203331;Sampled=1":                 "",
		"Root=1-0af76519-16cd43dd8448eb211c80319c;Parent=B7AD6B7169203331":                           "",
		"Root=1-2-3;Parent=x": "",
		"":                    "",
	} {
		if got := Traceparent(header); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
}

func FuzzTraceparent(f *testing.F) {
	f.Add("Root=1-0af76519-16cd43dd8448eb211c80319c;Parent=b7ad6b7169203331;Sampled=1")
	f.Add("Root=1-;;=")
	f.Fuzz(func(t *testing.T, header string) {
		if got := Traceparent(header); got != Traceparent(traceHeader(got)) {
			t.Errorf("%q is read as %q, and what that is written as otherwise", header, got)
		}
	})
}
