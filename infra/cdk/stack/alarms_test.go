package stack

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// watched lists the alarms by name.
func watched(tpl template) map[string]resource {
	out := map[string]resource{}
	for _, a := range tpl.of("AWS::CloudWatch::Alarm") {
		out[a.Properties["AlarmName"].(string)] = a
	}
	return out
}

// AWS-FACTS section 9: each part has its alarms, and there is no other.
func TestAlarms_AreAllThere(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		want := []string{"account-concurrency", "api-5xx", "api-slow", "cache-busy", "cache-full", "cache-throttled"}
		for _, m := range env.Config.Models {
			want = append(want, m.Alias+"-direct")
			for _, target := range m.Targets {
				if env.production() {
					want = append(want, m.Alias+"-"+target.Name+"-breaker")
				}
			}
		}
		for _, q := range env.Config.QueueNames() {
			want = append(want, string(q)+"-dead-letters", string(q)+"-oldest", string(q)+"-in-flight")
		}
		parts := []string{"enqueue", "admin", "worker-rt", "worker-bg", "worker-bulk"}
		if env.production() {
			parts = append(parts, "governor")
		}
		for _, p := range parts {
			want = append(want, p+"-errors", p+"-throttles", p+"-store-down")
			if p != "enqueue" {
				want = append(want, p+"-slow")
			}
			if env.production() && p != "admin" && p != "governor" {
				want = append(want, p+"-concurrency", "new-version-"+p)
			}
		}
		var got []string
		for name, a := range watched(tpl) {
			got = append(got, strings.TrimPrefix(name, env.name()+"-"))
			if a.Properties["TreatMissingData"] != "notBreaching" || a.Properties["AlarmDescription"] == "" {
				t.Errorf("%s: %s", name, text(a.Properties))
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("alarms (-want +got):\n%s", diff)
		}
	})
}

func TestAlarms_RingAtTheirBounds(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		alarms := watched(tpl)
		bound := func(name string) any { return alarms[env.name(name)].Properties["Threshold"] }
		if got := bound("worker-bg-slow"); got != 0.8*330_000 {
			t.Errorf("worker-bg is slow at %v ms, want 80 %% of its timeout", got)
		}
		limits := tpl.of("AWS::ElastiCache::ServerlessCache")
		for _, c := range limits {
			gb, _ := at(c.Properties, "CacheUsageLimits", "DataStorage", "Maximum").(float64)
			ecpu, _ := at(c.Properties, "CacheUsageLimits", "ECPUPerSecond", "Maximum").(float64)
			if bound("cache-full") != 0.75*gb*1e9 || bound("cache-busy") != 0.75*ecpu*60 {
				t.Errorf("cache alarms at %v bytes and %v ECPU a minute, with limits of %v GB and %v ECPU/s", bound("cache-full"), bound("cache-busy"), gb, ecpu)
			}
		}
		for _, m := range env.Config.Models {
			for _, l := range m.Lanes {
				q := string(env.Config.Queues.Names().Model(m.Alias, l))
				want := []any{1.0, map[llmq.Lane]float64{llmq.LaneRT: 60, llmq.LaneBG: 900, llmq.LaneBulk: 14_400}[l], 80_000.0}
				if diff := cmp.Diff(want, []any{bound(q + "-dead-letters"), bound(q + "-oldest"), bound(q + "-in-flight")}); diff != "" {
					t.Errorf("%s: %s", q, diff)
				}
			}
		}
	})
}

// What prod reserves must be a quota that the account has, and the template says which.
func TestConcurrency_NeedsAQuotaThatIsStated(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		sum := 0.0
		for _, f := range tpl.of("AWS::Lambda::Function") {
			n, _ := f.Properties["ReservedConcurrentExecutions"].(float64)
			sum += n
		}
		if env.production() != (sum > 0) {
			t.Fatalf("%v reserved", sum)
		}
		stated := at(tpl.Outputs, "NeededConcurrency", "Value")
		if sum > 0 && stated != "550" || sum == 0 && stated != nil || sum > 0 && sum+100 != 550 {
			t.Errorf("%v are reserved, and the stated quota is %v", sum, stated)
		}
	})
}

// The command line finds an environment by these names.
func TestOutputs_AreThoseThatTheCommandLineReads(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		for _, name := range []string{"AdminURL", "OpenAIBaseURL", "BedrockEndpoint", "DataBucket", "StateBucket", "QueuePrefix", "Dashboard"} {
			if at(tpl.Outputs, name, "Value") == nil || at(tpl.Outputs, name, "Description") == "" {
				t.Errorf("%s has no output %s", env.name(), name)
			}
		}
	})
}

// The dashboard shows each queue of each model.
func TestDashboard_ShowsEveryQueue(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		for _, d := range tpl.of("AWS::CloudWatch::Dashboard") {
			shown := text(d.Properties["DashboardBody"])
			for _, q := range env.Config.QueueNames() {
				if !strings.Contains(shown, `\"`+string(q)+`\"`) && !strings.Contains(shown, string(q)) || !strings.Contains(shown, string(q.DLQ())) {
					t.Errorf("%s is not shown", q)
				}
			}
			if d.Properties["DashboardName"] != env.name() {
				t.Errorf("dashboard %v", d.Properties["DashboardName"])
			}
		}
	})
}

// An own metric is found by its labels alone: each that is watched or shown has those that the functions write it with.
func TestOwnMetrics_AreAskedForAsTheyAreWritten(t *testing.T) {
	labels := map[string][]string{}
	for _, m := range telemetry.Metrics() {
		labels[string(m.Name)] = slices.Sorted(slices.Values(m.Labels))
	}
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		asked := 0
		check := func(where string, namespace, name any, dimensions []string) {
			if namespace != "llmq/"+env.Config.Env {
				return
			}
			asked++
			slices.Sort(dimensions)
			if diff := cmp.Diff(labels[name.(string)], dimensions); diff != "" {
				t.Errorf("%s asks for %v by (-written +asked):\n%s", where, name, diff)
			}
		}
		names := func(dimensions any) []string {
			var all []string
			for _, d := range listOf(dimensions) {
				all = append(all, at(d, "Name").(string))
			}
			return all
		}
		for id, a := range tpl.of("AWS::CloudWatch::Alarm") {
			check(id, a.Properties["Namespace"], a.Properties["MetricName"], names(a.Properties["Dimensions"]))
			for _, m := range listOf(a.Properties["Metrics"]) {
				check(id, at(m, "MetricStat", "Metric", "Namespace"), at(m, "MetricStat", "Metric", "MetricName"), names(at(m, "MetricStat", "Metric", "Dimensions")))
			}
		}
		if asked < 10 {
			t.Errorf("%d own metrics are watched", asked)
		}
	})
}
