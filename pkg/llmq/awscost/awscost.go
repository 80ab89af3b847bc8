// Package awscost turns operations that AWS bills into dollars, by one dated price file: those that were counted ([Counts], from the
// local cloud or a day's metrics) and those that a formula gives ([Traffic], [Standing]). It knows nothing of what providers charge
// for models, which is mostly more.
//
// These are estimates, so that amounts are floats; money that is counted is package cost's.
package awscost

import (
	_ "embed" // for the prices
	"encoding/json"
	"fmt"
	"strings"
)

//go:embed prices.json
var file []byte

// Prices is the price file.
type Prices struct {
	Date   string // when it was last looked through, as 2026-11-30
	Region string
	Note   string
	Prices map[string]Price
}

// Price is one of them.
type Price struct {
	USD        float64
	Per        string // unit
	Source     string // where it was seen
	Unverified bool   // not on the vendor's own page
}

// Load reads the price file of this release.
func Load() (Prices, error) {
	var p Prices
	dec := json.NewDecoder(strings.NewReader(string(file)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return Prices{}, fmt.Errorf("read the price file: %w", err)
	}
	return p, nil
}

// usd is a price by its name. One that is missing is a programmer's fault, which a test finds.
func (p Prices) usd(name string) float64 {
	price, found := p.Prices[name]
	if !found {
		panic("awscost: no price " + name)
	}
	return price.USD
}

const (
	million   = 1e6
	hours     = 730.0 // of a month
	month     = hours * 3600
	bytesOfGB = 1e9 // of logs and of traffic
)
