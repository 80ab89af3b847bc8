package config

import (
	"cmp"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// checker holds the finished configuration against the rules that reach over more
// than one setting. A rule is silent about settings that have a fault already.
type checker struct {
	*report
	cfg  *Config
	vars map[string]string
}

func (c *checker) check() {
	c.place()
	c.addresses()
	c.keys()
	c.producers()
	c.providers()
	c.models()
	c.jobs()
	c.queues()
	c.lanes()
	c.calls()
	c.traces()
	c.cassette()
	c.deploy()
}

func (c *checker) aws() bool   { return c.cfg.Kind == KindAWS }
func (c *checker) local() bool { return c.cfg.Kind == KindLocal }

// place holds the kind against where the process runs (SECURITY-DESIGN LM2, SEC30).
func (c *checker) place() {
	root := c.vars["LAMBDA_TASK_ROOT"]
	// AWS unpacks zips to /var/task; so does sam local, which says so.
	if c.local() && root == "/var/task" && c.vars["AWS_SAM_LOCAL"] != "true" {
		c.fault("kind", "local is refused inside Lambda: it allows plain text and stand-ins for AWS; deploy a kind: aws file")
	}
	// The CDK app reads the same file before there are addresses.
	if c.aws() && root != "" {
		if c.cfg.Valkey.Address == "" {
			c.fault("valkey.address", "is missing inside Lambda; the deployment sets LLMQ_REDIS_HOST and LLMQ_REDIS_PORT")
		}
		if c.cfg.Storage.Bucket == "" {
			c.fault("storage.bucket", "is missing inside Lambda; the deployment sets LLMQ_S3_OFFLOAD_BUCKET")
		}
		if c.cfg.Storage.StateBucket == "" {
			c.fault("storage.state_bucket", "is missing inside Lambda; the deployment sets LLMQ_S3_STATE_BUCKET")
		}
		if c.cfg.Queues.URLBase == "" {
			c.fault("queues.url_base", "is missing inside Lambda; the deployment sets LLMQ_SQS_URL_BASE")
		}
		if c.cfg.Valkey.CacheName == "" {
			c.fault("valkey.cache_name", "is missing inside Lambda; the deployment sets LLMQ_REDIS_CACHE_NAME")
		}
		if len(c.cfg.Queues.SenderIDs) == 0 && c.ok("queues.sender_ids") {
			c.fault("queues.sender_ids", "is missing inside Lambda; the deployment sets LLMQ_SQS_SENDER_IDS")
		}
		if len(c.cfg.Queues.WorkerIDs) == 0 && c.ok("queues.worker_ids") {
			c.fault("queues.worker_ids", "is missing inside Lambda; the deployment sets LLMQ_SQS_WORKER_IDS")
		}
	}
}

// addresses checks how AWS or its stand-ins are reached.
func (c *checker) addresses() {
	v := c.cfg.Valkey
	if _, given := c.given["valkey.address"]; given && c.ok("valkey.address") {
		if problem := checkHostPort(v.Address); problem != "" {
			c.fault("valkey.address", "%s", problem)
		}
	}
	if c.aws() {
		if !v.TLS && c.ok("valkey.tls") {
			c.fault("valkey.tls", "must be true on aws: plain text is for kind: local only")
		}
		if !v.Password.IsZero() {
			c.fault("valkey.password", "is refused on aws: IAM signs in, with no password to lose")
		}
	} else if !v.Password.IsZero() {
		c.secret("valkey.password", v.Password)
	}
	switch {
	case c.cfg.Admin.Key.IsZero():
	case c.aws():
		c.fault("admin.key", "is refused on aws: IAM signs operators in, with no key to lose")
	default:
		c.secret("admin.key", c.cfg.Admin.Key)
	}
	switch {
	case !c.cfg.IDSalt.IsZero():
		c.secret("id_hash_salt", c.cfg.IDSalt)
	case c.aws():
		c.fault("id_hash_salt", "is missing; on aws the built-in salt is refused, for everybody knows it: give {arn: ...} of Secrets Manager")
	}
	if raw := c.cfg.Queues.URLBase; raw != "" && c.ok("queues.url_base") {
		if u, problem := parseURL(raw); problem != "" {
			c.fault("queues.url_base", "%s", problem)
		} else if c.aws() && u.Scheme != "https" {
			c.fault("queues.url_base", "must be https on aws")
		}
	}
	c.endpoint("queues.endpoint_url", c.cfg.Queues.Endpoint)
	c.endpoint("storage.endpoint_url", c.cfg.Storage.Endpoint)
}

func checkHostPort(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	n, convErr := strconv.Atoi(port)
	if err != nil || convErr != nil || host == "" || strings.ContainsAny(host, " /@") || n < 1 || n > 65535 {
		return "must be host:port, such as localhost:6379"
	}
	return ""
}

// endpoint checks the URL of a stand-in for an AWS service.
func (c *checker) endpoint(path, raw string) {
	if raw == "" || !c.ok(path) {
		return
	}
	if c.aws() {
		c.fault(path, "is refused on aws: endpoints of stand-ins are for kind: local only")
		return
	}
	if _, problem := parseURL(raw); problem != "" {
		c.fault(path, "%s", problem)
	}
}

// secret checks a reference. It shows none of it: the secret itself may have been
// put there.
func (c *checker) secret(path string, s Secret) {
	switch {
	case !c.ok(path, path+".env", path+".arn"):
	case s.Env != "" && s.ARN != "":
		c.fault(path, "has both env and arn; one of them is enough")
	case s.Env != "" && c.aws():
		c.fault(path+".env", "is refused on aws: a function's variables are readable; use {arn: ...} of Secrets Manager")
	case s.Env != "" && !variablePattern.MatchString(s.Env):
		c.fault(path+".env", "must be the name of a variable, %s, not the secret itself", shape(variablePattern))
	case s.ARN != "" && c.local():
		c.fault(path+".arn", "is refused in kind: local, which reaches no AWS account; use {env: NAME}")
	case s.ARN != "" && !secretARN.MatchString(s.ARN):
		c.fault(path+".arn", "must be the ARN of a Secrets Manager secret, arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME")
	}
}

// keys checks what callers' keys rest on.
func (c *checker) keys() {
	const path = "key_pepper"
	p := c.cfg.KeyPepper
	switch {
	case !p.IsZero():
		c.secret(path, p)
		if p == c.cfg.Admin.Key {
			c.fault(path, "is admin.key too; each is a secret of its own")
		}
	case c.local():
		c.fault(path, "is missing; callers' keys are sealed with it, and the door has no open mode: give {env: NAME} of a variable with at least 32 random characters")
	}
	if c.local() && c.cfg.Storage.StateBucket == "" {
		c.fault("storage.state_bucket", "is missing; callers' keys lie there, and the door has no open mode")
	}
}

// queues checks that no two queues share a name, dead-letter queues among them.
// Their length needs no rule: the patterns keep it at 70 characters of SQS's 80.
func (c *checker) queues() {
	owners := map[queue.Name]string{}
	prefix := queue.Names{Prefix: cmp.Or(c.cfg.Queues.Prefix, "llm")} // names collide under any
	for _, m := range c.cfg.Models {
		path := modelPath(m.Alias)
		for _, l := range m.Lanes {
			name := prefix.Model(m.Alias, l)
			c.own(owners, path, name)
		}
	}
	for _, j := range c.cfg.Jobs {
		c.own(owners, jobsPath(j.Name), prefix.Model(j.Name, llmq.LaneBulk))
	}
}

// own notes whose a queue and its dead-letter queue are.
func (c *checker) own(owners map[queue.Name]string, path string, name queue.Name) {
	for _, n := range []queue.Name{name, name.DLQ()} {
		if owner, taken := owners[n]; taken && owner != path && c.ok(path) {
			c.fault(path, "its queue %s is one of %s too; rename one of them", llmq.Clip(string(n), 80), owner)
		}
		owners[n] = path
	}
}

func (c *checker) lanes() {
	for _, l := range llmq.Lanes() {
		lane, path := c.cfg.Lanes[l], lanePath(l)
		if c.ok(path+".embed_timeout_secs", path+".max_timeout_secs") && lane.MaxTimeout < lane.EmbedTimeout {
			c.fault(path+".max_timeout_secs", "must be at least embed_timeout_secs, %s: embeddings that name no deadline get that one", formatSecs(lane.EmbedTimeout))
		}
		if c.ok(path+".timeout_secs", path+".max_timeout_secs") && lane.MaxTimeout < lane.Timeout {
			c.fault(path+".max_timeout_secs", "must be at least timeout_secs, %s: a request that names no deadline gets that one", formatSecs(lane.Timeout))
		}
	}
	c.capacityWait()
	c.longestAttempt()
	c.inlineFits()
	c.retryCurve()
}

// retryCurve refuses a curve that begins above its end.
func (c *checker) retryCurve() {
	const base, most = "timing.retry_base_secs", "timing.retry_max_secs"
	t := c.cfg.Timing
	if c.ok(base, most) && t.RetryBase > t.RetryMax {
		c.fault(most, "must be at least %s, %s: no wait is shorter", base, formatSecs(t.RetryBase))
	}
}

// calls holds what is set for single models, targets and providers against what holds for all.
func (c *checker) calls() {
	for _, p := range c.cfg.Providers {
		c.callTimes(providerPath(p.Name), p.Calls)
	}
	longest := c.longestFunction()
	for _, m := range c.cfg.Models {
		c.callTimes(modelPath(m.Alias), m.Calls)
		for i, t := range m.Targets {
			pace, at := c.cfg.pace(m, t, c.cfg.provider(t.Provider)), targetPath(m.Alias, i)
			if pace.RetryBase > pace.RetryMax && c.ok("timing.retry_max_secs", "timing.retry_base_secs") {
				c.fault(at+".retry_max_secs", "must be at least retry_base_secs, %s, but is %s there: no wait is shorter", formatSecs(pace.RetryBase), formatSecs(pace.RetryMax))
			}
			if own := cmp.Or(t.Tries.AttemptTimeout, m.Tries.AttemptTimeout, c.cfg.provider(t.Provider).Tries.AttemptTimeout); own > longest {
				c.fault(at+".attempt_timeout_secs", "must be at most the longest function_timeout_secs, %s: no attempt outlives its function", formatSecs(longest))
			}
		}
	}
}

// callTimes holds deadlines and waits of a provider's or a model's calls against their lanes'.
func (c *checker) callTimes(path string, of Calls) {
	for _, l := range llmq.Lanes() {
		most := c.cfg.Lanes[l].MaxTimeout
		for name, d := range map[string]time.Duration{"timeout_secs.": of.Timeout.of(l), "embed_timeout_secs.": of.EmbedTimeout.of(l)} {
			if d > most && c.ok(path+"."+name+string(l), lanePath(l)+".max_timeout_secs") {
				c.fault(path+"."+name+string(l), "must be at most lanes.%s.max_timeout_secs, %s", l, formatSecs(most))
			}
		}
	}
	if function := c.cfg.Lanes[llmq.LaneRT].FunctionTimeout; of.RTCapacityWait.Of >= function.Seconds() && c.ok(lanePath(llmq.LaneRT)+".function_timeout_secs") {
		c.fault(path+".rt_capacity_wait_secs", "must be less than lanes.rt.function_timeout_secs, %s: a function that waits to its end can serve nothing", formatSecs(function))
	}
}

// capacityWait refuses a wait that outlives the function that waits. Where only the
// function's timeout was given, that is the one to mend.
func (c *checker) capacityWait() {
	wait, function := "timing.rt_capacity_wait_secs", lanePath(llmq.LaneRT)+".function_timeout_secs"
	waitFor, runFor := c.cfg.Timing.RTCapacityWait, c.cfg.Lanes[llmq.LaneRT].FunctionTimeout
	if !c.ok(wait, function) || waitFor < runFor {
		return
	}
	const why = "a function that waits to its end can serve nothing"
	if _, given := c.given[wait]; given {
		c.fault(wait, "must be less than %s, %s: %s", function, formatSecs(runFor), why)
	} else {
		c.fault(function, "must be more than %s, %s: %s", wait, formatSecs(waitFor), why)
	}
}

// envelopeRoom is what a message needs beside its body.
const envelopeRoom = 8 << 10

// inlineFits refuses bodies inside messages that can't hold them.
func (c *checker) inlineFits() {
	const inline, message = "storage.inline_max_bytes", "queues.max_message_bytes"
	if most := c.cfg.Queues.MaxMessageBytes - envelopeRoom; c.ok(inline, message) && c.cfg.Storage.InlineMaxBytes > most {
		c.fault(inline, "must be at most %d: %s is %d, and the envelope around a body needs %d", most, message, c.cfg.Queues.MaxMessageBytes, envelopeRoom)
	}
}

// longestAttempt refuses an attempt timeout that no function lives long enough for.
func (c *checker) longestAttempt() {
	paths := []string{"timing.attempt_timeout_secs"}
	for _, l := range llmq.Lanes() {
		paths = append(paths, lanePath(l)+".function_timeout_secs")
	}
	if longest := c.longestFunction(); c.ok(paths...) && c.cfg.Timing.AttemptTimeout > longest {
		c.fault(paths[0], "must be at most the longest function_timeout_secs, %s: no attempt outlives its function", formatSecs(longest))
	}
}

func (c *checker) longestFunction() time.Duration {
	longest := time.Duration(0)
	for _, lane := range c.cfg.Lanes {
		longest = max(longest, lane.FunctionTimeout)
	}
	return longest
}

// cassette checks what is recorded or played instead of asking providers.
func (c *checker) cassette() {
	mode, dir := c.cfg.Cassette.Mode, c.cfg.Cassette.Dir
	switch {
	case !c.ok("cassette.mode", "cassette.dir"):
	case c.aws() && mode != "":
		c.fault("cassette.mode", "is refused on aws: recordings are for kind: local only")
	case mode != "" && dir == "":
		c.fault("cassette.dir", "is required with cassette.mode: the folder of the recordings")
	case dir != "" && !filepath.IsAbs(dir):
		c.fault("cassette.dir", "must be an absolute path: functions run in folders of their own")
	}
}
