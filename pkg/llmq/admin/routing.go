package admin

import (
	"context"
	"strconv"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/settings"
)

// The settings that route a model's live calls.
const (
	routingMode    = "routing.rt"
	routingPercent = "routing.rt_queue_percent"
)

// RoutingView is how live calls reach their providers.
type RoutingView struct {
	Revision int            `json:"revision"`
	Killed   bool           `json:"killed"` // nothing is queued
	Models   []ModelRouting `json:"models"`
	Fault    string         `json:"fault,omitempty"` // why processes don't follow what is stored
}

// ModelRouting is that of a model.
type ModelRouting struct {
	Model        string             `json:"model"`
	Mode         config.RoutingMode `json:"mode"`
	QueuePercent float64            `json:"queue_percent"`         // sessions that queue though Mode is auto or direct
	FailoverMS   int64              `json:"failover_ms,omitempty"` // its queue took nothing, and its live calls run where their callers wait for so long
}

// Routing shows it for every model.
func (s *Settings) Routing(ctx context.Context) (RoutingView, error) {
	st, err := s.deps.Store.Load(ctx)
	if err != nil {
		return RoutingView{}, err
	}
	merged, _, fault := s.merged(st)
	v := RoutingView{Revision: st.Revision, Killed: merged.Routing.Killed, Models: []ModelRouting{}, Fault: fault}
	for _, m := range merged.Models {
		mode, percent := merged.Route(m)
		v.Models = append(v.Models, ModelRouting{Model: m.Alias, Mode: mode, QueuePercent: percent})
	}
	return v, s.failovers(ctx, v.Models)
}

// failovers reads for how long models do without their queues.
func (s *Settings) failovers(ctx context.Context, models []ModelRouting) error {
	var b luascript.Batch
	var left []*luascript.Call
	for _, m := range models {
		left = append(left, b.Command("PTTL", s.deps.Space.Failover(m.Model).Direct))
	}
	if err := b.Run(ctx, s.deps.Valkey); err != nil {
		return err
	}
	for i := range models {
		ms, err := left[i].Int()
		if err != nil {
			return err
		}
		models[i].FailoverMS = max(0, ms) // below 0: there is none
	}
	return nil
}

// RouteRequest routes a model's live calls.
type RouteRequest struct {
	Model        string    `json:"model"`
	Lane         llmq.Lane `json:"lane"`          // rt, or left out: bg and bulk always queue
	Mode         string    `json:"mode"`          // auto, direct or queue; left out it stays, but with QueuePercent below 100 queue becomes auto
	QueuePercent *float64  `json:"queue_percent"` // 0 to 100; left out it stays
	Revision     *int      `json:"revision"`
}

// Route sets how a model's live calls reach their providers: two settings like others, under a name of their own.
func (s *Settings) Route(ctx context.Context, by string, r RouteRequest) (Changed, error) {
	var fault error
	switch {
	case r.Model == "":
		fault = llmq.Errorf(llmq.CodeInvalidRequest, "model is missing; name a configured model by its alias").At("model")
	case r.Lane != "" && r.Lane != llmq.LaneRT:
		fault = llmq.Errorf(llmq.CodeInvalidRequest, "lane must be rt: bg and bulk always queue").At("lane")
	case r.Mode == "" && r.QueuePercent == nil:
		fault = llmq.Errorf(llmq.CodeInvalidRequest, "mode and queue_percent are both missing; give one").At("mode")
	case s.deps.Config.Routing.Direct == config.DirectOff && r.Mode != string(config.RoutingQueue):
		fault = llmq.Errorf(llmq.CodeConfiguration, "routing.direct is off in this deployment: its door may call no provider, and everything queues").At("mode")
	}
	return s.change(ctx, by, "routing set", r.Revision, fault, func(o config.Overrides) (config.Overrides, error) {
		values := config.Values{}
		if r.Mode != "" {
			values[routingMode] = r.Mode
		}
		if r.QueuePercent != nil {
			values[routingPercent] = strconv.FormatFloat(*r.QueuePercent, 'f', -1, 64)
			if r.Mode == "" && *r.QueuePercent < 100 && s.modeOf(o, r.Model) == config.RoutingQueue {
				values[routingMode] = string(config.RoutingAuto) // a canary of a model that queues altogether would do nothing
			}
		}
		return settings.Set(o, settings.Of{Model: r.Model}, values), nil
	})
}

// modeOf is a model's mode under o.
func (s *Settings) modeOf(o config.Overrides, alias string) config.RoutingMode {
	merged, err := s.deps.Config.Override(o)
	if err != nil {
		return ""
	}
	for _, m := range merged.Models {
		if m.Alias == alias {
			mode, _ := merged.Route(m)
			return mode
		}
	}
	return ""
}

// KillRequest throws the kill switch.
type KillRequest struct {
	On       *bool `json:"on"`
	Revision *int  `json:"revision"`
}

// Kill has nothing queued from now on, or all as it was: live calls that no stream is asked of run where their callers wait, while a
// slot is free; all else is refused with [llmq.CodeQueueUnavailable] (FEATURES E12). What is on its queue is run.
func (s *Settings) Kill(ctx context.Context, by string, r KillRequest) (Changed, error) {
	var fault error
	if r.On == nil {
		fault = llmq.Errorf(llmq.CodeInvalidRequest, "on is missing; give true or false").At("on")
	}
	return s.change(ctx, by, "routing kill", r.Revision, fault, func(o config.Overrides) (config.Overrides, error) {
		o.Killed = *r.On
		return o, nil
	})
}

// ResetRouting takes the kill switch and every live route back.
func (s *Settings) ResetRouting(ctx context.Context, by string, r ResetRequest) (Changed, error) {
	return s.change(ctx, by, "routing reset", r.Revision, nil, func(o config.Overrides) (config.Overrides, error) {
		names := []string{routingMode, routingPercent}
		for alias := range o.Models {
			o = settings.Unset(o, settings.Of{Model: alias}, names)
		}
		for name := range o.Providers {
			o = settings.Unset(o, settings.Of{Provider: name}, names)
		}
		o.Killed = false
		return o, nil
	})
}
