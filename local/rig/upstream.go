package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// firstModel asks an OpenAI-compatible endpoint for the first model that it lists.
func firstModel(ctx context.Context, baseURL, key string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	url := strings.TrimRight(baseURL, "/") + "/models"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("the endpoint can't be reached: %w", err)
	}
	defer resp.Body.Close() // it was read as far as it is wanted
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return "", fmt.Errorf("GET %s answers %s: the endpoint does not take OPENAI_API_KEY", url, resp.Status)
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("GET %s answers %s: a base URL usually ends with /v1", url, resp.Status)
	case json.NewDecoder(io.LimitReader(resp.Body, 4<<20)).Decode(&list) != nil:
		return "", fmt.Errorf("GET %s does not answer with a list of models: a base URL usually ends with /v1", url)
	case len(list.Data) == 0:
		return "", fmt.Errorf("GET %s lists no models", url)
	}
	return list.Data[0].ID, nil
}

func lookup(env []string, name string) string {
	value := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v // the last one counts, as in a shell
		}
	}
	return value
}
