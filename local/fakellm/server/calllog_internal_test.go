package server

import "testing"

func TestCallLog_BodiesAreBoundedTogether(t *testing.T) {
	t.Parallel()
	l := callLog{limit: 100}
	quarter := make([]byte, maxLogBytes/4)
	for range 6 {
		l.add(Call{Body: quarter})
	}
	calls := l.calls
	if len(calls) != 4 || calls[0].Seq != 3 || calls[3].Seq != 6 || l.bytes != maxLogBytes {
		t.Errorf("%d calls with %d bytes kept, want the last 4", len(calls), l.bytes)
	}
	l.add(Call{Body: make([]byte, 1)})
	if calls := l.calls; len(calls) != 4 || calls[0].Seq != 4 {
		t.Errorf("%d calls kept, want one byte to push one out", len(calls))
	}
}
