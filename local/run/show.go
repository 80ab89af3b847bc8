package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
)

// firstCall sends one call through the queue and prints the reply with its meta.
func firstCall(ctx context.Context, r *rig.Rig, out io.Writer) error {
	if r.FirstModel == "" {
		fmt.Fprintln(out, "no first call was sent: "+r.NoFirstModel+"; any model name works in yours")
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	body, err := json.Marshal(map[string]any{"model": r.FirstModel, "messages": []map[string]string{{"role": "user", "content": "hello, queue"}}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+r.Key)
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("first call: %w", err)
	}
	defer resp.Body.Close() // it was read to its end, or the read's error is returned
	reply, err := io.ReadAll(io.LimitReader(resp.Body, 20<<20))
	if err != nil {
		return fmt.Errorf("first call: %w", err)
	}
	fmt.Fprintf(out, "\nPOST %s/v1/chat/completions\n%s\n\n%s in %d ms\n", r.URL, body, resp.Status, time.Since(began).Milliseconds())
	for _, name := range metaHeaders(resp.Header) {
		fmt.Fprintf(out, "%s: %s\n", name, resp.Header.Get(name))
	}
	fmt.Fprintf(out, "\n%s\n\n", bytes.TrimSpace(reply))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the first call ended with %s: %s; run again with -v to see more", resp.Status, oneLine(reply))
	}
	return nil
}

// oneLine is the beginning of a reply, without what would break the line.
func oneLine(reply []byte) string {
	printable := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, string(reply))
	return llmq.Clip(strings.Join(strings.Fields(printable), " "), 600)
}

func metaHeaders(h http.Header) []string {
	var names []string
	for name := range h {
		if strings.HasPrefix(name, "X-Llmq-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// printReady prints what a shell needs to call this cloud, and last the line that
// scripts wait for.
func printReady(out io.Writer, r *rig.Rig) {
	fmt.Fprintln(out, "# for operators, and for services that put messages on a queue:")
	fmt.Fprintf(out, "export LLMQ_ADMIN_URL=%s LLMQ_ADMIN_KEY=%s AWS_ENDPOINT_URL_SQS=%s AWS_ENDPOINT_URL_LAMBDA=%s AWS_ENDPOINT_URL_S3=%s AWS_ACCESS_KEY_ID=%s AWS_SECRET_ACCESS_KEY=%s AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1\n",
		r.AdminURL, r.AdminKey, r.Config.Queues.Endpoint, r.LambdaURL, r.Config.Storage.Endpoint, cloud.Producer, r.AdminKey)
	fmt.Fprintln(out, "# for callers:")
	fmt.Fprintf(out, "export OPENAI_BASE_URL=%s/v1 OPENAI_API_KEY=%s AWS_ENDPOINT_URL_BEDROCK_RUNTIME=%s AWS_BEARER_TOKEN_BEDROCK=%s AWS_CA_BUNDLE=%s AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1\n",
		r.URL, r.Key, r.TLSURL, r.Key, r.CAFile)
	fmt.Fprintln(out, "# for Go programs that send to the queues themselves (wiring.Open, tenant \"default\"), besides the operators' line:")
	fmt.Fprintln(out, exports(r.Environ()))
	fmt.Fprintf(out, "metrics %s\n", r.MetricsURL)
	fmt.Fprintf(out, "ready %s\n", r.URL)
}

// exports is a line that a shell takes: a value may be JSON, as LLMQ_SETTINGS is.
func exports(env []string) string {
	line := "export"
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if strings.ContainsFunc(value, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-./:=@%+,", r)
		}) {
			value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		line += " " + name + "=" + value
	}
	return line
}
