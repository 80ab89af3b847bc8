package main

import (
	"fmt"
	"slices"
	"strings"
)

// comparison is a scenario beside the figure that the seed gives for its own of the same name: the Python queue whose features
// llmq began from. Its figures are quoted from its documents, for its rig can't be run here.
type comparison struct {
	ID      string
	Ours    []string // names of our figures, those that are there
	Seed    string
	Differs string // where the rigs do, besides what holds of all
}

// rigsDiffer holds of every comparison.
const rigsDiffer = "The seed ran Python workers of 50 slots as long-lived processes with ElasticMQ or Valkey Streams, Valkey and a fake provider in containers, on a laptop. " +
	"Here the functions' own binaries run behind event sources that scale as AWS's do, on the machine named above. So counts compare, times only in order of magnitude."

const noFigure = "passes; no figure is given"

// beside are the comparisons, in the order of the definitions.
func beside() []comparison {
	all := []comparison{
		{"S07", []string{"in_flight_p10", "in_flight_p50", "in_flight_p90", "throttled_percent", "goodput_of_best_percent"}, "in flight 44–64 before a repair, 57–63 after it", "its quota is not told; ours is 60"},
		{"S20", []string{"first_unanswered_s", "first_refused_s", "slowest_of_the_later_ms"}, "first call served in 5.7 s", "no answer and a refusal are told apart here; the seed's is no answer"},
		{"S22", []string{"cold_burst_lag_ms"}, "0.1–1.8 s cold on real AWS, under 60 ms warm", "the seed's lag is its event loop's, with real AWS's TLS; ours the slowest rt call beside the burst, without TLS"},
		{"S27", []string{"rt_wait_p95_ms", "rt_wait_idle_p95_ms", "takeovers"}, "rt wait p95 1.1 s at 6,000 a minute for 3 minutes; lost claims 4 before a repair, 0 after it", "the same load in full form"},
		{"S31", []string{"waiters", "reads_of_the_store_a_second", "reads_of_the_store_a_waiter_in_30_s"}, "43 reads (MGET) a second before a repair, 26 after it, for 1,000 waiters", "the seed's waiters are of one process and read in bulk; ours are of a program and 100 doors, and read once each, should a wake have been lost"},
		{"S33", []string{"bg_sends", "bg_deletes", "sqs_requests_per_call_rt_total", "idle_receives_per_queue_and_minute"}, noFigure, "the seed counts in a proxy, we in the SQS of the local cloud, as AWS bills"},
		{"S35", []string{"calls_per_second", "of_the_best_percent", "ok"}, "22.5 calls a second, then 76.1, then 90.4; 6,721, then 10,000 ok", "the provider's own limit is not told for the seed; ours gives 100 a second at best"},
		{"S35b", []string{"calls_per_second", "ok_percent"}, "16.3 calls a second, then 49.7–59.3; 17.5 %, then 99.2 % ok", "as S35"},
		{"S35c", []string{"takeovers"}, "19 claims taken over from a live owner, then 0", "as S35"},
		{"S50", []string{"blip_ok", "wipe_ok", "of_these_after_a_wipe"}, "32 of 40 ok over a blip, then 40; 0–16 re-runs over a wipe", "none known"},
		{"S53", []string{"peak", "requests", "done_s", "best_possible_s", "sqs_messages_in_flight_peak"}, "peak exactly 10; 2,000 done in 61 s; 40 SQS messages in flight at most", "its 3 workers have 50 slots each, our 15 have 10"},
		{"S54", []string{"peak_before", "peak_after", "in_force_after_s"}, "peak 20, then 5 in one reload; 900 of 900 ok", "its 3 workers are processes, ours ten invocations at once"},
		{"S55", []string{"peak"}, "peak exactly 8; 600 of 600 ok", "none known"},
		{"S56", []string{"slot_free_p50_ms", "slot_free_p99_ms"}, "0.03–0.05 s", "none known"},
		{"S57", []string{"bulk_peak", "bg_peak", "rt_start_ms", "rt_start_idle_p50_ms"}, "exactly 3 and 5; the rt call starts in 0.23 s; 600 ok", "none known"},
	}
	for _, sc := range rates() {
		all = append(all, comparison{sc.ID, nil, noFigure, "none known"})
	}
	return all
}

// writeBeside adds those of the verdicts that the seed has too.
func writeBeside(b *strings.Builder, verdicts []verdict) {
	const head = "\n## Beside the seed\n\nThe seed is the Python queue whose features llmq began from; its figures are those of its documents. " + rigsDiffer +
		"\n\n| scenario | here | the seed | the rigs differ besides |\n|---|---|---|---|\n"
	first := true
	for _, c := range beside() {
		i := slices.IndexFunc(verdicts, func(v verdict) bool { return v.Scenario.ID == c.ID })
		if i < 0 {
			continue
		}
		if first {
			b.WriteString(head)
			first = false
		}
		ours := []string{verdicts[i].word()}
		for _, f := range verdicts[i].Figures {
			if slices.Contains(c.Ours, f.Name) || c.Ours == nil && !slices.Contains(ofAll, f.Name) {
				ours = append(ours, fmt.Sprintf("%s %v", f.Name, f.Value))
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", c.ID, strings.Join(ours, ", "), c.Seed, c.Differs)
	}
}
