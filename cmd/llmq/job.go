package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/remote"
	"github.com/llm-queue/llmq/pkg/llmq"
)

func (a *app) job() *cobra.Command {
	c := &cobra.Command{
		Use:     "job",
		Short:   "Send jobs to functions of your own, show and cancel them",
		Long:    "Send jobs to functions of your own, which a worker of your own runs; show and cancel them by their ids.",
		Example: "  llmq job send words --queue text --payload-file payload.json --wait 60",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	status := a.showRequest()
	status.Use, status.Short = "status ID", "Where a job stands"
	status.Long = "Where a job stands: its state, its runs, its next try, what went wrong, and the worker that ran it, whose log stream has that name.\n" +
		"Locally its log is among what make run RUNFLAGS=-v prints."
	status.Example = "  llmq job status report-2026-11 --wait 60"
	result := a.requestResult("job status")
	result.Short, result.Example = "The result of a job that is done", "  llmq job result report-2026-11 --wait 60"
	result.Long = "The result of a job that is done, as its function returned it. A job that has ended otherwise fails here as it did."
	cancel := a.cancelRequest()
	cancel.Short, cancel.Example = "Cancel a job", "  llmq job cancel report-2026-11"
	cancel.Long = "Cancel a job: one that is queued is not run, one that runs is stopped. One that has ended stays as it is, which is no error."
	c.AddCommand(a.sendJob(), status, result, cancel)
	return c
}

// sending is what the flags of job send say.
type sending struct {
	queue, file, id   string
	timeoutSecs, wait int
}

func (a *app) sendJob() *cobra.Command {
	var ask sending
	c := &cobra.Command{
		Use:   "send NAME",
		Short: "Send a job to the function of that name",
		Long: `Send a job to the function of that name on one of the queue's workers, and show its id. The payload is a JSON object, of a file or
of stdin. The result is kept for a day. A job runs at least once; sent again under its id it runs no second time.`,
		Example: "  llmq job send words --queue text --payload-file payload.json\n" +
			"  echo '{\"text\": \"to be or not to be\"}' | llmq job send words --queue text --payload-file - --wait 60",
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error { return a.runSendJob(ctx, args[0], ask) }),
	}
	f := c.Flags()
	f.StringVarP(&ask.queue, "queue", "q", "", "the queue of jobs, as the configuration names it under jobs")
	f.StringVarP(&ask.file, "payload-file", "f", "", "the payload, a JSON object; - is stdin")
	f.StringVar(&ask.id, "id", "", "the job's id; one is made where none is given")
	f.IntVar(&ask.timeoutSecs, "timeout-secs", 0, "seconds in which it must be done; 0 is the queue's own deadline")
	f.IntVar(&ask.wait, "wait", 0, "seconds to wait for its end; 0 only sends it")
	return c
}

func (a *app) runSendJob(ctx context.Context, name string, ask sending) error {
	switch {
	case ask.queue == "":
		return usagef("which queue? --queue takes one that the configuration has under jobs; llmq queues lists all queues")
	case ask.file == "":
		return usagef("what is its payload? give --payload-file, or - for stdin")
	case ask.wait < 0 || ask.wait > mostWait: // the door would say so too, once the job was sent
		return usagef("--wait takes 0 to %d seconds", mostWait)
	}
	payload, err := a.read(ask.file)
	if err != nil {
		return err
	}
	if object := map[string]json.RawMessage(nil); json.Unmarshal(payload, &object) != nil || object == nil {
		return usagef("%s holds no JSON object", ask.file)
	}
	door, err := a.door(ctx)
	if err != nil {
		return err
	}
	raw, err := door.Post(ctx, callsPath, submission{
		ID: ask.id, Op: llmq.OpJob, Model: llmq.ModelRef{Alias: ask.queue, Target: name}.String(), TimeoutSecs: ask.timeoutSecs, Body: payload,
	})
	if err != nil {
		return err
	}
	if ask.wait > 0 {
		if raw, err = a.awaitJob(ctx, door, raw, ask.wait); err != nil {
			return err
		}
	}
	if err := answer(a, raw, a.callTables); err != nil {
		return err
	}
	return ended(raw)
}

// ended is the error of a job that has ended badly: who waits for one in a script wants to know by the exit code.
func ended(raw json.RawMessage) error {
	var job callAnswer
	if err := json.Unmarshal(raw, &job); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if job.Error == nil {
		return nil
	}
	return fmt.Errorf("the job ended as %s: %s (%s)", job.State, job.Error.Message, job.Error.Code)
}

// awaitJob asks for where a job that was sent stands once it has ended, or the wait is over.
func (a *app) awaitJob(ctx context.Context, door *remote.Remote, sent json.RawMessage, wait int) (json.RawMessage, error) {
	var job callAnswer
	if err := json.Unmarshal(sent, &job); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	a.say("sent as %s; llmq job result %s fetches its result", job.ID, url.PathEscape(job.ID))
	return door.Ask(ctx, http.MethodGet, callPath(job.ID, "", wait), nil)
}
