package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/llm-queue/llmq/cmd/llmq/internal/remote"
)

// stackOutput reads where a deployed environment is: an output of its CloudFormation stack, llmq-<env>.
func (a *app) stackOutput(ctx context.Context, name string) (place, error) {
	cfg, region, err := a.aws(ctx, "")
	if err != nil {
		return place{}, err
	}
	base := a.env["AWS_ENDPOINT_URL_CLOUDFORMATION"]
	if base == "" {
		base = "https://cloudformation." + region + ".amazonaws.com"
	}
	api, err := a.open(base, remote.SigV4(cfg.Credentials, "cloudformation", region))
	if err != nil {
		return place{}, err
	}
	stack := "llmq-" + a.envName
	query := url.Values{"Action": {"DescribeStacks"}, "Version": {"2010-05-15"}, "StackName": {stack}}
	resp, err := api.Do(ctx, http.MethodGet, "/?"+query.Encode(), http.Header{"Accept": {"text/xml"}}, nil)
	var refused *remote.Refused
	if errors.As(err, &refused) && refused.Status == http.StatusBadRequest {
		return place{}, notFound{fmt.Sprintf("%s has no stack %s, or it may not be read; llmq is found by --admin-url too", region, stack)}
	}
	if err != nil {
		return place{}, fmt.Errorf("ask CloudFormation for the stack %s: %w", stack, err)
	}
	defer resp.Body.Close() // it was read to its end, or the read's error is returned
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return place{}, &remote.Unreachable{Host: api.Host(), Err: err}
	}
	at, err := outputOf(text, name)
	if err != nil {
		return place{}, fmt.Errorf("the stack %s: %w", stack, err)
	}
	return place{url: at}, nil
}

// outputOf finds an output in the answer of DescribeStacks. CDK puts the path of its construct before the output's name, and a
// hash behind it.
func outputOf(text []byte, name string) (string, error) {
	var described struct {
		Outputs []struct {
			OutputKey, OutputValue string
		} `xml:"DescribeStacksResult>Stacks>member>Outputs>member"`
	}
	if err := xml.NewDecoder(bytes.NewReader(text)).Decode(&described); err != nil {
		return "", fmt.Errorf("read CloudFormation's answer: %w", err)
	}
	for _, o := range described.Outputs {
		if strings.Contains(o.OutputKey, name) {
			return o.OutputValue, nil
		}
	}
	return "", fmt.Errorf("it has no output %s", name)
}
