package cloud

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/llm-queue/llmq/local/cloud/eventsource"
	"github.com/llm-queue/llmq/local/cloud/internal/localonly"
	"github.com/llm-queue/llmq/local/cloud/schedule"
)

// governEvery is the rate of the governor's schedule, as deployed.
const governEvery = time.Minute

// openLambdaAPI opens Lambda's API: invocations and event source mappings. Functions are told where it is, so it comes
// before them; the mappings come after.
func (c *Cloud) openLambdaAPI() error {
	opts := eventsource.DefaultOptions()
	opts.Region, opts.AccountID, opts.Logger = region, account, c.log
	opts.Queue, opts.Invoker = c.Client("lambda"), c.Lambda
	opts.FunctionTimeout = c.Lambda.Timeout
	var err error
	if c.Mappings, err = eventsource.NewMappings(opts); err != nil {
		return fmt.Errorf("event sources: %w", err)
	}
	c.onClose(func(ctx context.Context) error { c.Mappings.Close(ctx); return nil })
	api := http.NewServeMux()
	api.Handle(eventsource.Prefix, c.Mappings)
	api.Handle(eventsource.Prefix+"/", c.Mappings)
	api.Handle("/", c.Lambda.API())
	c.LambdaURL, err = c.serve("127.0.0.1:0", localonly.Handler(api), nil)
	return err
}

// startGovernor runs the governor's schedule: where the configuration turns it off, for what doors forecast from.
func (c *Cloud) startGovernor() error {
	s, err := schedule.New(schedule.Options{
		Name: FunctionGovernor, Function: FunctionGovernor, Every: governEvery, Region: region, AccountID: account, Invoker: c.Lambda, Logger: c.log,
	})
	if err != nil {
		return fmt.Errorf("schedule of the governor: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	c.onClose(func(context.Context) error { stop(); return <-ended })
	return nil
}
