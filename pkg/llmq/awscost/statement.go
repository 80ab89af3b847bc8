package awscost

import "math"

// Reading is what was counted, and where: what a local cloud tells llmq cost, and what a file may hold.
type Reading struct {
	Counts   Counts    `json:"counts"`
	Standing *Standing `json:"standing,omitempty"` // nil is not known
}

// Statement is what a reading comes to.
type Statement struct {
	PricesOf string `json:"prices_of"` // the date, as 2026-11-30
	Region   string `json:"region"`
	Note     string `json:"note"`
	Counts   Counts `json:"counts"`
	Shape    Shape  `json:"a_call"`

	Million    []Item  `json:"million"` // of calls like those counted; empty where there was none
	MillionUSD float64 `json:"million_usd"`
	Levers     []Lever `json:"levers"`

	Month    []Item  `json:"month"` // without a call
	MonthUSD float64 `json:"month_usd"`
	// MonthCounted says that the month goes on as the counted hours went; else it is by formula, as shortly after a start.
	MonthCounted bool `json:"month_counted"`
}

// enoughSeconds are what tells how often event sources poll: each poll lasts 20 s.
const enoughSeconds = 60

// Statement prices a reading. A month of an environment that is not known has what was counted and the store's least.
func (p Prices) Statement(r Reading) Statement {
	s := Statement{PricesOf: p.Date, Region: p.Region, Note: p.Note, Counts: r.Counts, Shape: r.Counts.Shape(), Million: p.Million(r.Counts), Levers: p.Levers(r.Counts)}
	standing, idle := Standing{}, r.Counts
	if r.Standing != nil {
		standing = *r.Standing
	}
	if s.MonthCounted = idle.Seconds >= enoughSeconds; !s.MonthCounted {
		idle = standing.Idle()
	}
	s.Month = p.Month(standing, idle)
	s.MillionUSD, s.MonthUSD = tidy(Total(s.Million)), tidy(Total(s.Month))
	for i := range s.Levers {
		s.Levers[i].USD = tidy(s.Levers[i].USD)
	}
	for _, items := range [][]Item{s.Million, s.Month} {
		for i := range items {
			items[i].Count, items[i].USD = tidy(items[i].Count), tidy(items[i].USD)
		}
	}
	return s
}

// tidy leaves out the noise behind the sixth decimal, of which nobody is billed.
func tidy(x float64) float64 { return math.Round(x*1e6) / 1e6 }
