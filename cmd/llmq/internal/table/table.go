// Package table writes rows for people: columns that fit a terminal's width, with colour where it is wanted.
package table

import (
	"strings"
	"unicode/utf8"
)

// Style is how a cell looks where there is colour.
type Style int

// The styles.
const (
	Plain Style = iota
	Faint       // of no interest now
	Good
	Warn
	Bad
	head
)

func (s Style) code() string {
	return [...]string{"", "2", "32", "33", "31", "1"}[s]
}

// Paint writes text in a style, by SGR sequences.
func Paint(text string, s Style) string {
	if s == Plain || text == "" {
		return text
	}
	return "\x1b[" + s.code() + "m" + text + "\x1b[0m"
}

// Column is a column's heading and how it behaves.
type Column struct {
	Head  string
	Right bool // numbers
	// Drop is the order in which columns go where the terminal is too narrow: the highest first. One with 0 stays.
	Drop int
}

// Cell is a text with its style.
type Cell struct {
	Text  string
	Style Style
}

// Text is a cell without a style.
func Text(s string) Cell { return Cell{Text: s} }

// Table is rows under headings. A row may be shorter than the headings.
type Table struct {
	Title   string // above the headings; "" is none
	Columns []Column
	Rows    [][]Cell
}

const gap = "  "

// Render writes the table within width columns: it leaves out what may be left out, then cuts the widest column. A
// column without any text is left out too. Width 0 is no bound.
func (t Table) Render(width int, colour bool) string {
	keep := t.used()
	widths := t.widths()
	for width > 0 && total(keep, widths) > width {
		worst := -1
		for _, c := range keep {
			if t.Columns[c].Drop > 0 && (worst < 0 || t.Columns[c].Drop > t.Columns[worst].Drop) {
				worst = c
			}
		}
		if worst < 0 {
			break
		}
		keep = without(keep, worst)
	}
	if over := total(keep, widths) - width; width > 0 && over > 0 {
		widest := keep[0]
		for _, c := range keep {
			if widths[c] > widths[widest] {
				widest = c
			}
		}
		widths[widest] = max(8, widths[widest]-over)
	}
	var b strings.Builder
	paint := func(text string, s Style) string {
		if !colour {
			return text
		}
		return Paint(text, s)
	}
	if t.Title != "" {
		b.WriteString(paint(t.Title, head) + "\n")
	}
	line := func(cell func(int) Cell) {
		var row strings.Builder
		for i, c := range keep {
			if i > 0 {
				row.WriteString(gap)
			}
			got := cell(c)
			text := clip(got.Text, widths[c])
			pad := strings.Repeat(" ", widths[c]-utf8.RuneCountInString(text))
			switch {
			case t.Columns[c].Right:
				row.WriteString(pad + paint(text, got.Style))
			case i == len(keep)-1:
				row.WriteString(paint(text, got.Style))
			default:
				row.WriteString(paint(text, got.Style) + pad)
			}
		}
		b.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
	line(func(c int) Cell { return Cell{t.Columns[c].Head, Faint} })
	for _, row := range t.Rows {
		line(func(c int) Cell {
			if c < len(row) {
				return row[c]
			}
			return Cell{}
		})
	}
	return b.String()
}

// used lists the columns that have any text.
func (t Table) used() []int {
	var keep []int
	for c := range t.Columns {
		for _, row := range t.Rows {
			if c < len(row) && row[c].Text != "" {
				keep = append(keep, c)
				break
			}
		}
	}
	if keep == nil {
		for c := range t.Columns {
			keep = append(keep, c)
		}
	}
	return keep
}

func (t Table) widths() []int {
	widths := make([]int, len(t.Columns))
	for c := range t.Columns {
		widths[c] = utf8.RuneCountInString(t.Columns[c].Head)
		for _, row := range t.Rows {
			if c < len(row) {
				widths[c] = max(widths[c], utf8.RuneCountInString(row[c].Text))
			}
		}
	}
	return widths
}

func total(keep, widths []int) int {
	sum := 0
	for i, c := range keep {
		if i > 0 {
			sum += len(gap)
		}
		sum += widths[c]
	}
	return sum
}

func without(keep []int, c int) []int {
	var rest []int
	for _, k := range keep {
		if k != c {
			rest = append(rest, k)
		}
	}
	return rest
}

// clip cuts a text to n runes, with an ellipsis for what is left out.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	return string(runes[:n-1]) + "…"
}
