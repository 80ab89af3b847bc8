package awscost

import "github.com/llm-queue/llmq/pkg/llmq/config"

// Standing is what an environment has that costs while nobody calls.
type Standing struct {
	Queues     int  `json:"queues"` // that an event source polls; dead-letter queues cost nothing
	Alarms     int  `json:"alarms"` // by their metrics, each of which is paid
	Dashboards int  `json:"dashboards"`
	Secrets    int  `json:"secrets"`
	Endpoints  int  `json:"endpoints,omitempty"` // interface endpoints, each in each zone
	NATs       int  `json:"nats,omitempty"`
	WAF        bool `json:"waf,omitempty"`
	Governor   bool `json:"governor,omitempty"`
}

// Of is what the CDK app makes of a configuration; one of its tests holds the two together.
func Of(cfg *config.Config) Standing {
	s := Standing{Dashboards: 1, Governor: cfg.Governor.Enabled, WAF: cfg.Deploy.WAFRequests > 0}
	functions := 2 // door, admin
	lanes := map[string]bool{}
	for _, m := range cfg.Models {
		s.Queues += len(m.Lanes)
		for _, l := range m.Lanes {
			lanes[string(l)] = true
		}
	}
	s.Queues += len(cfg.Jobs)
	workers := len(lanes) + len(cfg.Jobs) // a queue of jobs has one of its own
	functions += workers
	if s.Governor {
		functions++
	}
	const queue, function, model, account, api, cache = 4, 3, 1, 1, 2, 3 // a queue has three, one of them on two metrics
	s.Alarms = queue*s.Queues + function*functions + model*len(cfg.Models) + account + api + cache
	s.Alarms += functions - 1 // how long they run; the door's is the API's
	for _, m := range cfg.Models {
		if s.Governor {
			s.Alarms += len(m.Targets) // their breakers
		}
	}
	if cfg.Env == "prod" {
		s.Alarms += 2 * (1 + workers) // what is reserved, and new versions: of door and workers
	}
	s.Secrets = 2 // salt, pepper
	for _, p := range cfg.Providers {
		if !p.APIKey.IsZero() {
			s.Secrets++
		}
	}
	if cfg.Valkey.Network == "vpc" {
		zones := max(len(cfg.Deploy.Zones), 2)
		if cfg.Deploy.Endpoints {
			s.Endpoints = zones * endpointServices
		}
		switch cfg.Deploy.NAT {
		case config.NATOne:
			s.NATs = 1
		case config.NATEach:
			s.NATs = zones
		}
	}
	return s
}

// endpointServices are those that a VPC's functions call: SQS, Secrets Manager, Lambda, Bedrock.
const endpointServices = 4

const (
	// What an event source does while its queue is empty: five long polls at once, three times a minute each.
	pollsAMinute = 5 * 3
	minutes      = 60 * hours // of a month; the governor runs once in each, and looks at each queue
	governorMS   = 300
	governorMB   = 256
)

// Idle are the operations of a month without a call, by formula.
func (s Standing) Idle() Counts {
	polls := float64(s.Queues) * pollsAMinute * minutes
	c := Counts{Seconds: month, SQS: map[string]float64{"ReceiveMessage": polls}, EmptyReceives: polls}
	if s.Governor {
		c.SQS["GetQueueAttributes"] = float64(s.Queues) * minutes
		c.Functions = []Function{{Role: RoleGovernor, MemoryMB: governorMB, Invocations: minutes, BilledMS: minutes * governorMS}}
	}
	return c
}

// Month is what an environment costs in a month without a call: what stands there, and what happens by the hour as it did while c was
// counted, [Standing.Idle] or a span of real time.
func (p Prices) Month(s Standing, c Counts) []Item {
	var items []Item
	if c.Seconds > 0 {
		items = p.Bill(c.times(month / c.Seconds)).Hours
	}
	add := func(name string, count float64, unit string, usd float64) {
		items = append(items, Item{name, count, unit, count * usd})
	}
	add("state store", 0.1, "GB, which is the least", hours*p.usd("cache_gb_hour"))
	add("alarms", float64(s.Alarms), "metrics", p.usd("alarm_month"))
	add("dashboard", float64(s.Dashboards), "dashboards", p.usd("dashboard_month"))
	add("secrets", float64(s.Secrets), "secrets", p.usd("secret_month"))
	add("interface endpoints", float64(s.Endpoints), "in a zone each", hours*p.usd("endpoint_hour"))
	add("NAT gateways", float64(s.NATs), "without traffic", hours*p.usd("nat_hour"))
	if s.WAF {
		add("web ACL", 1, "of two rules", p.usd("waf_month"))
	}
	return paid(items)
}
