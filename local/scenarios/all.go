package main

import "slices"

// all are the scenarios that there are, the quick ones first.
func all() []scenario {
	return slices.Concat(calls(), waiters(), limits(), rates(), targets(), operating(), bursts(), bills(), costs(), backlogs(), forecasts(), recoveries(), jobs(), outages(), soaks())
}
