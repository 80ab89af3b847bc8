package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/llm-queue/llmq/cmd/llmq/internal/remote"
	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
	"github.com/llm-queue/llmq/local/beacon"
)

// envLocal is the environment of a local cloud.
const envLocal = "local"

// admin is the admin API: the flag's, the environment's that --env names, the variable's, or that of the local cloud
// that runs.
func (a *app) admin(ctx context.Context) (*remote.Remote, error) {
	at, err := a.adminBase(ctx)
	if err != nil {
		return nil, err
	}
	who, err := a.operator(ctx, at)
	if err != nil {
		return nil, err
	}
	return a.open(at.url, who)
}

// place is a URL with the key that belongs to it, if one does.
type place struct{ url, key string }

func (a *app) adminBase(ctx context.Context) (place, error) {
	ofCloud := func(c beacon.Cloud) place { return place{c.AdminURL, c.AdminKey} }
	switch {
	case a.adminURL != "":
		return a.known(a.adminURL, a.env["LLMQ_ADMIN_KEY"], ofCloud), nil
	case a.envName != "" && a.envName != envLocal:
		return a.stackOutput(ctx, "AdminURL")
	case a.envName == "" && a.env["LLMQ_ADMIN_URL"] != "":
		return a.known(a.env["LLMQ_ADMIN_URL"], a.env["LLMQ_ADMIN_KEY"], ofCloud), nil
	}
	c, err := a.localCloud("set LLMQ_ADMIN_URL, or use --admin-url")
	return ofCloud(c), err
}

// door is the door, in the same order.
func (a *app) door(ctx context.Context) (*remote.Remote, error) {
	at, err := a.doorBase(ctx)
	if err != nil {
		return nil, err
	}
	if u, err := url.Parse(at.url); err == nil {
		a.local = remote.OnLoopback(u.Hostname())
	}
	if at.key == "" {
		return nil, notFound{"no key for " + at.url + "; set OPENAI_API_KEY to one that llmq keys create has made"}
	}
	return a.open(strings.TrimSuffix(strings.TrimSuffix(at.url, "/"), "/v1"), remote.Bearer(at.key))
}

func (a *app) doorBase(ctx context.Context) (place, error) {
	ofCloud := func(c beacon.Cloud) place { return place{c.URL, c.Key} }
	switch {
	case a.doorURL != "":
		return a.known(a.doorURL, a.env["OPENAI_API_KEY"], ofCloud), nil
	case a.envName != "" && a.envName != envLocal:
		at, err := a.stackOutput(ctx, "OpenAIBaseURL")
		at.key = a.env["OPENAI_API_KEY"]
		return at, err
	case a.envName == "" && a.env["OPENAI_BASE_URL"] != "":
		return a.known(a.env["OPENAI_BASE_URL"], a.env["OPENAI_API_KEY"], ofCloud), nil
	}
	c, err := a.localCloud("set OPENAI_BASE_URL and OPENAI_API_KEY, or use --url")
	at := ofCloud(c)
	if key := a.env["OPENAI_API_KEY"]; strings.HasPrefix(key, "llmq_local_") {
		at.key = key // one that llmq keys create has made; any other alone is some provider's
	}
	return at, err
}

// known adds a local cloud's own key to its URL, where none was given.
func (a *app) known(base, key string, of func(beacon.Cloud) place) place {
	at := place{base, key}
	if key != "" {
		return at
	}
	clouds, err := beacon.Find(a.env["XDG_RUNTIME_DIR"])
	if err != nil {
		return at // it is asked without a key, and says so
	}
	for _, c := range clouds {
		if p := of(c); hostOf(p.url) == hostOf(base) {
			at.key = p.key
		}
	}
	return at
}

func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Host
}

// localCloud finds the one that runs; LLMQ_LOCAL_PORT tells which of several. elsewhere is what else a user can do but --env.
func (a *app) localCloud(elsewhere string) (beacon.Cloud, error) {
	clouds, err := beacon.Find(a.env["XDG_RUNTIME_DIR"])
	if err != nil {
		return beacon.Cloud{}, notFound{err.Error()}
	}
	var ports []string
	for _, c := range clouds {
		u, err := url.Parse(c.URL)
		if err != nil {
			continue // [beacon.Find] has parsed it
		}
		if u.Port() == a.env["LLMQ_LOCAL_PORT"] {
			return c, nil
		}
		ports = append(ports, u.Port())
	}
	switch {
	case len(clouds) > 0 && a.env["LLMQ_LOCAL_PORT"] != "":
		return beacon.Cloud{}, notFound{fmt.Sprintf("LLMQ_LOCAL_PORT is %s, and the local clouds that run here have %s; set it to one of those, or leave it out", a.env["LLMQ_LOCAL_PORT"], strings.Join(ports, ", "))}
	case len(clouds) == 0:
		return beacon.Cloud{}, notFound{fmt.Sprintf("no local cloud runs here, and nothing says where llmq is; start one with make run, or %s or --env", elsewhere)}
	case len(clouds) > 1:
		return beacon.Cloud{}, notFound{fmt.Sprintf("%d local clouds run here; set LLMQ_LOCAL_PORT to one of %s", len(clouds), strings.Join(ports, ", "))}
	}
	return clouds[0], nil
}

// operator proves who asks the admin API: by its key, or by a signature, on AWS and where a local cloud is asked by the AWS variables alone.
func (a *app) operator(ctx context.Context, at place) (remote.Authorizer, error) {
	u, err := url.Parse(at.url)
	if err != nil {
		return nil, usagef("%q is no URL", at.url)
	}
	switch {
	case at.key != "":
		return remote.Bearer(at.key), nil
	case u.Scheme != "https" && (!remote.OnLoopback(u.Hostname()) || a.env["AWS_ACCESS_KEY_ID"] == ""):
		return nil, notFound{"no key for " + at.url + "; set LLMQ_ADMIN_KEY: make run prints both"}
	}
	cfg, region, err := a.aws(ctx, remote.RegionOf(u.Hostname()))
	if err != nil {
		return nil, err
	}
	return remote.SigV4(cfg.Credentials, "execute-api", region), nil
}

// aws loads the SDK's default chain: the environment, profiles, SSO, roles.
func (a *app) aws(ctx context.Context, region string) (aws.Config, string, error) {
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return aws.Config{}, "", fmt.Errorf("%w: %w", remote.ErrNoCredentials, err)
	}
	if region = cmp.Or(region, cfg.Region); region == "" {
		return aws.Config{}, "", usagef("no AWS region is known; set AWS_REGION")
	}
	if cfg.Credentials == nil {
		return aws.Config{}, "", remote.ErrNoCredentials
	}
	return cfg, region, nil
}

func (a *app) open(base string, who remote.Authorizer) (*remote.Remote, error) {
	r, err := remote.New(base, who)
	if err != nil {
		return nil, usageError{err.Error()}
	}
	r.Unrecorded = func() {
		fmt.Fprintln(a.err, a.note("llmq: it is done, but no record of it was written to the state bucket; the admin function's log has it", table.Bad))
	}
	a.remotes = append(a.remotes, r)
	return r, nil
}
