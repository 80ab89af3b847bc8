package main

import "fmt"

// studied is what the law that this one was chosen after reached in the study, over eight
// seeds, in per cent: goodput of the oracle's, and throttled of the attempts.
type studied struct{ goodput, throttled float64 }

// studies by scenario; those that are missing are ours alone.
func studies() map[string]studied {
	return map[string]studied{
		"a concurrency 50":                            {99.8, 0.5},
		"a concurrency 400":                           {99.2, 0.3},
		"a concurrency 8":                             {99.0, 2.0},
		"b RPM bucket, 10 % burst":                    {100.0, 0.3},
		"b RPM bucket, 1 s burst":                     {96.9, 0.7},
		"b 60 RPM":                                    {97.4, 4.1},
		"c calendar minute":                           {100.0, 0.4},
		"c sliding minute":                            {98.3, 0.5},
		"c sliding, refused calls count":              {95.7, 1.1},
		"d TPM, burndown 5":                           {100.1, 0.7},
		"d TPM by minute":                             {98.7, 4.8},
		"e mixed":                                     {95.8, 4.6},
		"f 2 % random, concurrency":                   {96.2, 2.4},
		"f 2 % random, RPM":                           {94.4, 3.8},
		"f 30 % random, concurrency":                  {93.6, 40.5},
		"f 30 % random, RPM":                          {83.4, 34.7},
		"g concurrency halves and returns":            {97.3, 1.2},
		"g RPM halves and returns":                    {92.8, 2.2},
		"h foreign consumer, concurrency":             {90.4, 2.6},
		"h foreign consumer, RPM":                     {94.3, 3.1},
		"i outage by 429, slow recovery":              {94.9, 1.4},
		"i outage by 5xx, slow recovery":              {97.8, 0.7},
		"l 30 % of endings never arrive, concurrency": {78.3, 6.3},
		"l 30 % of endings never arrive, RPM":         {100.0, 0.5},
	}
}

// The goals: how far a row may lie from the study's, what makes a baseline beaten or
// equalled, and the least goodput. slack is what a share may differ by more: the study's
// are rounded to a tenth of a point.
const (
	goodputPoints  = 0.02
	throttledTenth = 1.1
	slack          = 0.0005
	baselinePoints = 0.06
	leastGoodput   = 0.75
)

// beats tells whether a baseline is beaten or equalled: more goodput, or hardly less and
// fewer throttles.
func beats(ours, theirs score) bool {
	return ours.Goodput > theirs.Goodput ||
		ours.Goodput >= theirs.Goodput-baselinePoints && ours.Throttled < theirs.Throttled
}

// misses lists the goals that a row does not reach; none is a good row.
func misses(name string, ours score, baselines map[string]score) []string {
	var out []string
	if s, ok := studies()[name]; ok {
		if ours.Goodput < s.goodput/100-goodputPoints-slack {
			out = append(out, fmt.Sprintf("goodput %.1f %% is more than two points below %.1f", 100*ours.Goodput, s.goodput))
		}
		if ours.Throttled > s.throttled/100*throttledTenth+slack {
			out = append(out, fmt.Sprintf("throttled %.2f %% is more than a tenth above %.1f", 100*ours.Throttled, s.throttled))
		}
	}
	for _, name := range []string{"AIMD", "clustered"} {
		if b, ok := baselines[name]; ok && !beats(ours, b) {
			out = append(out, fmt.Sprintf("%s is not beaten: %.1f %% with %.1f %% throttled", name, 100*b.Goodput, 100*b.Throttled))
		}
	}
	if ours.Goodput < leastGoodput && name[0] != 'l' {
		out = append(out, fmt.Sprintf("goodput %.1f %% is below 75", 100*ours.Goodput))
	}
	return out
}
