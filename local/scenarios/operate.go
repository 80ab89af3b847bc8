package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Operate asks the admin API for a change, and reads its answer into out, which may be nil.
func (w *world) Operate(ctx context.Context, path string, body, out any) error {
	sent, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.AdminURL+path, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+w.AdminKey)
	resp, err := w.door.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // it is read to its end
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %d %.300s", path, resp.StatusCode, text)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}
