package awscost

import (
	"fmt"

	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// Standing is what an environment has that costs while nobody calls.
type Standing struct {
	Queues     int // that an event source polls; dead-letter queues cost nothing
	Alarms     int // by their metrics, each of which is paid
	Dashboards int
	Secrets    int
	Endpoints  int // interface endpoints, each in each zone
	NATs       int
	WAF        bool
	Governor   bool
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

// What an event source does while its queue is empty: five long polls at once, three times a minute each.
const pollsAMonth = 5 * 3 * 60 * hours

// Month is what an environment costs in a month without a call.
func (p Prices) Month(s Standing) []Item {
	items := []Item{
		{"event sources that poll", fmt.Sprintf("%d queues × %d k requests", s.Queues, pollsAMonth/1000), float64(s.Queues) * pollsAMonth / 1e6 * p.usd("sqs_million")},
		{"state store", "0.1 GB, which is the least", 0.1 * hours * p.usd("cache_gb_hour")},
		{"alarms", fmt.Sprintf("%d", s.Alarms), float64(s.Alarms) * p.usd("alarm_month")},
		{"dashboard", fmt.Sprintf("%d", s.Dashboards), float64(s.Dashboards) * p.usd("dashboard_month")},
		{"secrets", fmt.Sprintf("%d", s.Secrets), float64(s.Secrets) * p.usd("secret_month")},
	}
	if s.Governor {
		const runs, seconds, gb = 60 * hours, 0.3, 0.25
		items = append(items, Item{"governor", fmt.Sprintf("%d runs of 0.3 s with 256 MB", runs), runs/1e6*p.usd("lambda_million") + runs*seconds*gb*p.usd("lambda_gb_second")})
	}
	if s.Endpoints > 0 {
		items = append(items, Item{"interface endpoints", fmt.Sprintf("%d, each in its zone", s.Endpoints), float64(s.Endpoints) * hours * p.usd("endpoint_hour")})
	}
	if s.NATs > 0 {
		items = append(items, Item{"NAT gateways", fmt.Sprintf("%d, without traffic", s.NATs), float64(s.NATs) * hours * p.usd("nat_hour")})
	}
	if s.WAF {
		items = append(items, Item{"web ACL", "two rules", p.usd("waf_month")})
	}
	return items
}
