package secrets

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const value = "sk-live-hunter2"

// holders are the ways in which people keep a Secret by accident in something that
// is printed.
func holders() map[string]any {
	s := New(value)
	return map[string]any{
		"itself":           s,
		"pointer":          &s,
		"exported field":   struct{ S Secret }{s},
		"unexported field": struct{ s Secret }{s},
		"nested":           struct{ in struct{ s *Secret } }{struct{ s *Secret }{&s}},
		"list":             []Secret{s},
		"map":              map[string]Secret{"k": s},
	}
}

func TestSecret_NoVerbShowsIt(t *testing.T) {
	t.Parallel()
	for name, h := range holders() {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "% x", "%10.3v"} {
			shown(t, name+" "+verb, fmt.Sprintf(verb, h))
		}
		shown(t, name+" Sprint", fmt.Sprint(h))
		shown(t, name+" error", fmt.Errorf("calling with %v", h).Error())
	}
}

func TestSecret_NoLogShowsIt(t *testing.T) {
	t.Parallel()
	for name, h := range holders() {
		var b bytes.Buffer
		slog.New(slog.NewJSONHandler(&b, nil)).Info("m", "h", h)
		slog.New(slog.NewTextHandler(&b, nil)).Info("m", "h", h, slog.Group("g", "h", h))
		shown(t, name, b.String())
	}
}

func TestSecret_NoEncodingShowsIt(t *testing.T) {
	t.Parallel()
	for name, h := range holders() {
		b, err := json.Marshal(h)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		shown(t, name, string(b))
	}
	type named struct{ S Secret } // XML wants a name
	b, err := xml.Marshal(named{New(value)})
	if err != nil {
		t.Error(err)
	}
	shown(t, "xml", string(b))
	if got := New(value).String() + New(value).GoString(); got != redacted+redacted {
		t.Errorf("got %q", got)
	}
}

// shown fails when the value, or its hexadecimal form, is in text.
func shown(t *testing.T, how, text string) {
	t.Helper()
	low := strings.ToLower(strings.ReplaceAll(text, " ", ""))
	if strings.Contains(low, value) || strings.Contains(low, fmt.Sprintf("%x", value)) {
		t.Errorf("%s shows the secret: %s", how, text)
	}
}

func TestSecret_RevealAndEqual(t *testing.T) {
	t.Parallel()
	s := New(value)
	if s.Reveal() != value || s.IsZero() {
		t.Error("the value is lost")
	}
	if !s.Equal(New(value)) || s.Equal(New(value+"x")) || s.Equal(Secret{}) {
		t.Error("Equal compares wrongly")
	}
	if zero := (Secret{}); !zero.IsZero() || zero.Reveal() != "" || zero.Equal(Secret{}) || New("").Equal(New("")) {
		t.Error("no value must equal nothing: an empty key would open the door")
	}
}
