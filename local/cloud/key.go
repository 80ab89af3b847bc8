package cloud

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
)

// createKey makes the first key as an operator does, by the admin API: it may do everything with every model and every
// queue of jobs that is configured.
func (c *Cloud) createKey(ctx context.Context) error {
	models := make([]string, 0, len(c.Config.Models))
	for _, m := range c.Config.Models {
		models = append(models, m.Alias)
	}
	for _, j := range c.Config.Jobs {
		models = append(models, j.Name)
	}
	body, err := json.Marshal(map[string]any{
		"name": "first", "tenant": "default", "scopes": auth.Scopes(), "models": models, "lanes": llmq.Lanes(),
	})
	if err != nil {
		return fmt.Errorf("first key: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.AdminURL+"/keys/create", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("first key: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.AdminKey)
	transport := &http.Transport{} // no connection of it outlives the call
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("first key: %w", err)
	}
	defer resp.Body.Close() // it was read, or the read's error is returned
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("first key: %w", err)
	}
	var made struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal(answer, &made); err != nil || resp.StatusCode != http.StatusOK || made.Key == "" {
		return fmt.Errorf("first key: the admin API answered %s", resp.Status)
	}
	c.Key = made.Key
	return nil
}
