package main

import (
	"context"
	"fmt"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/settings"
)

// fakeLive tells what it was asked.
type fakeLive struct{}

func (fakeLive) Settings(_ context.Context, model, provider string) (admin.SettingsView, error) {
	return admin.SettingsView{Revision: 3, Model: model, Provider: provider}, nil
}

func (fakeLive) Set(_ context.Context, by string, r admin.SetRequest) (admin.Changed, error) {
	if r.Revision != nil {
		return admin.Changed{}, llmq.Errorf(llmq.CodeInvalidRequest, "changed meanwhile").At("revision")
	}
	return admin.Changed{Revision: 4, Note: by + " " + r.Model + r.Provider + " " + string(r.Set["max_concurrency"]) + " " + string(r.Set["rate_window"])}, nil
}

func (fakeLive) Unset(_ context.Context, _ string, r admin.UnsetRequest) (admin.Changed, error) {
	return admin.Changed{Revision: len(r.Unset)}, nil
}

func (fakeLive) Reset(_ context.Context, by string, _ admin.ResetRequest) (admin.Changed, error) {
	return admin.Changed{Note: "reset by " + by}, nil
}

func (fakeLive) Audit(context.Context) ([]settings.Change, error) {
	return []settings.Change{{By: "ops"}}, nil
}

func (fakeLive) Routing(context.Context) (admin.RoutingView, error) {
	return admin.RoutingView{Killed: true}, nil
}

func (fakeLive) Route(_ context.Context, _ string, r admin.RouteRequest) (admin.Changed, error) {
	return admin.Changed{Note: r.Model + " " + r.Mode}, nil
}

func (fakeLive) Kill(_ context.Context, _ string, r admin.KillRequest) (admin.Changed, error) {
	return admin.Changed{Note: map[bool]string{true: "killed", false: "alive"}[*r.On]}, nil
}

func (fakeLive) ResetRouting(context.Context, string, admin.ResetRequest) (admin.Changed, error) {
	return admin.Changed{Note: "routes reset"}, nil
}

func (fakeLive) Fallback(context.Context) (admin.FallbackView, error) {
	return admin.FallbackView{Revision: 3}, nil
}

func (fakeLive) SetFallback(_ context.Context, _ string, r admin.FallbackRequest) (admin.Changed, error) {
	to := (*r.Chain)[0]
	return admin.Changed{Note: fmt.Sprint(r.Model, " ", to.Model, " ", to.RequireHeadroom)}, nil
}

func (fakeLive) ResetFallback(_ context.Context, _ string, r admin.ResetFallbackRequest) (admin.Changed, error) {
	return admin.Changed{Note: "chain of " + r.Model + " reset"}, nil
}
