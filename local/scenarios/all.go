package main

import "slices"

// all are the scenarios that there are, the quick ones first.
func all() []scenario {
	return slices.Concat(calls(), jobs(), waiters(), limits(), backlogs(), forecasts(), recoveries(), outages())
}
