package cloud

import (
	"errors"
	"fmt"
	"os"

	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// Deploy changes the configuration of what the functions do, as a deploy does: invocations
// that begin from now on read the new one, those that run end with the old one. Queues,
// event sources and functions stay as they are, so it is for limits, not for new models.
// Config is what the cloud was started with. Not for concurrent use.
func (c *Cloud) Deploy(change func(*config.Config)) error {
	cfg, err := config.Load(c.path, c.env)
	if err != nil {
		return err
	}
	change(cfg)
	next := c.path + ".next"
	if err := writeConfig(next, cfg); err != nil {
		return err
	}
	if _, err := config.Load(next, c.env); err != nil { // a fault shows here, as in start
		return errors.Join(err, os.Remove(next))
	}
	// At once: a function that starts meanwhile reads the old one or the new one.
	if err := os.Rename(next, c.path); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	for _, f := range c.functions(Functions{}) {
		if err := c.Lambda.Renew(f.Name); err != nil {
			return fmt.Errorf("deploy: %w", err)
		}
	}
	return nil
}

// Workers lists the live processes of a lane's worker, those that have ended left out.
func (c *Cloud) Workers(lane llmq.Lane) []lambda.InstanceInfo {
	var live []lambda.InstanceInfo
	for _, i := range c.Lambda.Instances(FunctionWorker(lane)) {
		if i.PID != 0 && i.State != lambda.StateDead {
			live = append(live, i)
		}
	}
	return live
}

func writeConfig(path string, cfg *config.Config) error {
	text, err := cfg.Marshal()
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}
