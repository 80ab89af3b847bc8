package stack

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// Environment is a configuration file that can be deployed.
type Environment struct {
	Config *config.Config
	File   string // path of the file, which is packed with every function
}

// Load reads an environment's file, as the functions will, and refuses what this
// release can't deploy. Variables of the machine that deploys play no part.
func Load(file string) (Environment, error) {
	cfg, err := config.Load(file, nil)
	if err != nil {
		return Environment{}, err
	}
	e := Environment{Config: cfg, File: file}
	if err := e.check(); err != nil {
		return Environment{}, fmt.Errorf("%s: %w", file, err)
	}
	return e, nil
}

// wholeARN is a secret's ARN with the six characters that Secrets Manager adds. IAM
// compares with those; without them only a wildcard would match.
var wholeARN = regexp.MustCompile(`-[A-Za-z0-9]{6}$`)

func (e Environment) check() error {
	cfg := e.Config
	if cfg.Kind != config.KindAWS {
		return fmt.Errorf("kind is %s; only kind: aws is deployed", cfg.Kind)
	}
	if name := strings.TrimSuffix(filepath.Base(e.File), ".yaml"); name != cfg.Env {
		return fmt.Errorf("env is %q, but the file is named %q: a mix-up would change another environment's stack", cfg.Env, name)
	}
	if provider := e.leaves(); cfg.Valkey.Network == "vpc" && cfg.Deploy.NAT == config.NATNone && provider != "" {
		return fmt.Errorf("the provider %s is not on AWS, or in another region, and a VPC has no way out to it: give deploy.nat, or valkey.network: public", provider)
	}
	secrets := e.doorSecrets()
	if arn := e.Config.KeyPepper.ARN; arn != "" {
		secrets = append(secrets, arn)
	}
	for _, l := range e.lanes() {
		secrets = append(secrets, e.providerSecrets(l)...)
	}
	for _, arn := range secrets {
		if !wholeARN.MatchString(arn) {
			return fmt.Errorf("the secret's ARN %s lacks the six characters that Secrets Manager adds to a name; give the whole ARN, for a policy can't name less", arn)
		}
	}
	return e.checkReserved()
}

// production reports whether concurrency is reserved and data outlives the stack.
func (e Environment) production() bool { return e.Config.Env == "prod" }

// keeps is what becomes of what holds messages when it leaves the template. In production it stays: a model that is taken
// out of the file by mistake loses nothing.
func (e Environment) keeps() awscdk.RemovalPolicy {
	if e.production() {
		return awscdk.RemovalPolicy_RETAIN
	}
	return awscdk.RemovalPolicy_DESTROY
}

// What is reserved in production (SECURITY-DESIGN DW6), so that no part can take
// another's concurrency, nor the account's.
const reservedDoor = 200

func reservedLane(l llmq.Lane) int {
	if l == llmq.LaneBulk {
		return 50
	}
	return 100
}

// unreserved is what Lambda keeps free of an account's concurrency.
const unreserved = 100

// neededConcurrency is the quota that an account needs for what is reserved; 0 where nothing is.
func (e Environment) neededConcurrency() int {
	sum := 0
	for _, f := range e.functions() {
		sum += f.reserved
	}
	if sum == 0 {
		return 0
	}
	return sum + unreserved
}

// checkReserved refuses event sources that may together invoke a worker more often
// than it may run: what is throttled counts as a receive and is delayed.
func (e Environment) checkReserved() error {
	if !e.production() {
		return nil
	}
	if need, quota := e.neededConcurrency(), e.Config.Deploy.LambdaConcurrency; need > quota {
		return fmt.Errorf("what is reserved takes a quota of %d concurrent executions, and deploy.lambda_concurrency is %d: ask AWS for more (Service Quotas, Lambda, \"Concurrent executions\")", need, quota)
	}
	for _, l := range e.lanes() {
		queues, each := len(e.models(l)), e.Config.Lanes[l].MaxConcurrency
		if queues*each > reservedLane(l) {
			return fmt.Errorf("lanes.%s.max_concurrency %d times %d queues is more than the %d that are reserved for the lane's worker; lower it to %d",
				l, each, queues, reservedLane(l), reservedLane(l)/queues)
		}
	}
	return nil
}

// lanes lists the lanes that have a queue, the most urgent first.
func (e Environment) lanes() []llmq.Lane {
	return slices.DeleteFunc(llmq.Lanes(), func(l llmq.Lane) bool { return len(e.models(l)) == 0 })
}

// models lists the models that have a queue of the lane, in the order of the file.
func (e Environment) models(l llmq.Lane) []config.Model {
	var ms []config.Model
	for _, m := range e.Config.Models {
		if slices.Contains(m.Lanes, l) {
			ms = append(ms, m)
		}
	}
	return ms
}

// direct reports whether the door may run calls itself.
func (e Environment) direct() bool { return e.Config.Routing.Direct != config.DirectOff }

// doorSecrets lists the ARNs that the file gives to the door: of the salt of id hashes.
func (e Environment) doorSecrets() []string { return []string{e.Config.IDSalt.ARN} }

// providerSecrets lists the ARNs of the providers' keys that a lane's models need.
func (e Environment) providerSecrets(l llmq.Lane) []string {
	var arns []string
	for _, p := range e.Config.Providers {
		if !p.APIKey.IsZero() && e.calls(l, p.Name) {
			arns = append(arns, p.APIKey.ARN)
		}
	}
	return arns
}

// calls reports whether a model with a queue of the lane has a target at a provider.
func (e Environment) calls(l llmq.Lane, provider string) bool {
	return slices.ContainsFunc(e.models(l), func(m config.Model) bool {
		return slices.ContainsFunc(m.Targets, func(t config.Target) bool { return t.Provider == provider })
	})
}

// name is the name of a part of the environment, such as llmq-dev-enqueue. It has 40
// characters at most, which is what ElastiCache takes.
func (e Environment) name(part ...string) string {
	return strings.Join(append([]string{"llmq", e.Config.Env}, part...), "-")
}
