package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/aws/aws-lambda-go/events"
)

// scheduled is what EventBridge Scheduler sends when it was given no input.
type scheduled struct {
	Source     string `json:"source"`
	DetailType string `json:"detail-type"`
}

// fromSchedule reports whether an event is the governor's minute. An event of API Gateway has no such fields.
func (s scheduled) fromSchedule() bool {
	return s.Source == "aws.scheduler" && s.DetailType == "Scheduled Event"
}

// newFunction tells the two kinds of event apart that this artifact is deployed for: the operators' API and, under a
// role of its own, the governor. A governor's run that could not do all of its work is no failure of the function: what
// is left is the next minute's, and a repeat of the event would only ask again at once. told is called at the end of
// each invocation: the process may be frozen after it.
func newFunction(serve handler, v verbs, told func()) func(context.Context, json.RawMessage) (any, error) {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		defer told()
		var s scheduled
		if json.Unmarshal(raw, &s) == nil && s.fromSchedule() {
			return v.Govern(ctx), nil
		}
		var ev events.APIGatewayProxyRequest
		if err := json.Unmarshal(raw, &ev); err != nil {
			return nil, fmt.Errorf("the event is neither API Gateway's nor a schedule's: %w", err)
		}
		return serve(ctx, ev)
	}
}
