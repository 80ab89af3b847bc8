package table

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func sample() Table {
	return Table{
		Title:   "Things",
		Columns: []Column{{Head: "NAME"}, {Head: "N", Right: true}, {Head: "FIRST TO GO", Drop: 2}, {Head: "NEXT", Drop: 1}, {Head: "EMPTY"}, {Head: "WHY"}},
		Rows: [][]Cell{
			{Text("a"), {"1", Warn}, Text("x"), Text("y"), {}, Text("for a reason that is told at length")},
			{Text("größer"), Text("200"), Text("x")},
		},
	}
}

func TestRender_FitsTheWidth(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{
		0: "Things\n" +
			"NAME      N  FIRST TO GO  NEXT  WHY\n" +
			"a         1  x            y     for a reason that is told at length\n" +
			"größer  200  x\n",
		60: "Things\n" +
			"NAME      N  NEXT  WHY\n" +
			"a         1  y     for a reason that is told at length\n" +
			"größer  200\n",
		30: "Things\n" +
			"NAME      N  WHY\n" +
			"a         1  for a reason tha…\n" +
			"größer  200\n",
	} {
		got := sample().Render(width, false)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", width, diff)
		}
	}
}

// However narrow it is: nothing panics, and no line is wider than its least columns.
func TestRender_NarrowestTerminal(t *testing.T) {
	t.Parallel()
	for width := 1; width < 100; width++ {
		for line := range strings.Lines(sample().Render(width, false)) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > max(width, 21) {
				t.Errorf("width %d: %d columns: %q", width, n, line)
			}
		}
	}
}

func TestRender_ColourDoesNotMoveColumns(t *testing.T) {
	t.Parallel()
	coloured := sample().Render(60, true)
	if !strings.Contains(coloured, "  \x1b[33m1\x1b[0m  ") {
		t.Errorf("no colour: %q", coloured)
	}
	for _, code := range []string{"0", "1", "2", "33"} {
		coloured = strings.ReplaceAll(coloured, "\x1b["+code+"m", "")
	}
	if diff := cmp.Diff(sample().Render(60, false), coloured); diff != "" {
		t.Error(diff)
	}
}

func TestRender_NoRowsShowHeadings(t *testing.T) {
	t.Parallel()
	if got := (Table{Columns: []Column{{Head: "KID"}, {Head: "STATE"}}}).Render(80, false); got != "KID  STATE\n" {
		t.Errorf("got %q", got)
	}
}
