package stack

import (
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awselasticache"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// cache is the state store: serverless Valkey, with one user per kind of function.
type cache struct {
	name                          string
	resource                      awselasticache.CfnServerlessCache
	door, worker, admin, governor user            // governor: where it is on
	programs                      map[string]user // of producers that are Go programs, by the producer's name
}

// user is a user of the cache. IAM signs it in, so it has no password.
type user struct {
	id       string // and name: IAM wants them equal
	resource awselasticache.CfnUser
}

func (c cache) host() *string { return c.resource.AttrEndpointAddress() }
func (c cache) port() *string { return c.resource.AttrEndpointPort() }

// admit lets a function sign in as one user.
func (c cache) admit(m member, as user) {
	m.allow("SignInToCache", []string{"elasticache:Connect"}, c.resource.AttrArn(), as.resource.AttrArn())
}

func newCache(s awscdk.Stack, env Environment, net network) cache {
	scope := constructs.NewConstruct(s, jsii.String("Cache"))
	c := cache{name: env.name()}
	c.door = newUser(scope, env.name("door"), doorRules(env.Config.Env, env.direct()))
	c.worker = newUser(scope, env.name("worker"), workerRules(env.Config.Env))
	c.admin = newUser(scope, env.name("admin"), adminRules(env.Config.Env))

	users := []user{c.door, c.worker, c.admin}
	if env.Config.Governor.Enabled {
		c.governor = newUser(scope, env.name("gov"), governorRules(env.Config.Env))
		users = append(users, c.governor)
	}
	c.programs = map[string]user{}
	for _, p := range env.Config.Producers {
		if p.Program {
			u := newUser(scope, env.programUser(p), programRules(env.Config.Env, p.Tenant))
			c.programs[p.Name], users = u, append(users, u)
		}
	}
	ids := make([]string, len(users))
	for i, u := range users {
		ids[i] = u.id
	}

	group := awselasticache.NewCfnUserGroup(scope, jsii.String("Users"), &awselasticache.CfnUserGroupProps{
		Engine: jsii.String("valkey"), UserGroupId: jsii.String(env.name()),
		UserIds: jsii.Strings(ids...), // no default user: nobody gets in but by name
	})
	for _, u := range users {
		group.AddResourceDependency(u.resource, nil)
	}
	props := &awselasticache.CfnServerlessCacheProps{
		Engine: jsii.String("valkey"), MajorEngineVersion: jsii.String("9"), // the first with a public endpoint
		ServerlessCacheName: jsii.String(c.name),
		Description:         jsii.String("claims, capacity and results of llmq " + env.Config.Env),
		UserGroupId:         jsii.String(env.name()),
		CacheUsageLimits:    usageLimits(env),
	}
	if net.vpc == nil {
		props.ConnectionType = jsii.String("public")
	} else {
		props.SecurityGroupIds, props.SubnetIds = &[]any{net.cache.SecurityGroupId()}, net.subnetIDs()
	}
	c.resource = awselasticache.NewCfnServerlessCache(scope, jsii.String("Serverless"), props)
	c.resource.AddResourceDependency(group, nil)
	if len(c.programs) > 0 {
		output(scope, "CacheHost", c.host(), "LLMQ_REDIS_HOST of Go programs")
		output(scope, "CachePort", c.port(), "LLMQ_REDIS_PORT of Go programs")
	}
	return c
}

// cacheLimits bound the bill, in GB and in ECPU/s. Past the first the cache evicts, past the second it throttles; one slot,
// which carries all of capacity, serves 30,000 ECPU/s.
func (e Environment) cacheLimits() (gigabytes, ecpus float64) {
	if e.production() {
		return 10, 60_000
	}
	return 1, 5_000
}

func usageLimits(env Environment) *awselasticache.CfnServerlessCache_CacheUsageLimitsProperty {
	gigabytes, ecpus := env.cacheLimits()
	return &awselasticache.CfnServerlessCache_CacheUsageLimitsProperty{
		DataStorage:   &awselasticache.CfnServerlessCache_DataStorageProperty{Unit: jsii.String("GB"), Maximum: jsii.Number(gigabytes)},
		EcpuPerSecond: &awselasticache.CfnServerlessCache_ECPUPerSecondProperty{Maximum: jsii.Number(ecpus)},
	}
}

func newUser(scope constructs.Construct, id string, r rules) user {
	return user{id: id, resource: awselasticache.NewCfnUser(scope, jsii.String(id), &awselasticache.CfnUserProps{
		Engine: jsii.String("valkey"), UserId: jsii.String(id), UserName: jsii.String(id),
		AccessString: jsii.String(r.String()),
		// A map, since the typed property is written in lower case, which is refused.
		AuthenticationMode: map[string]any{"Type": "iam"},
	})}
}

// rules is what a user of the cache may touch and do (SECURITY-DESIGN VK1). Scripts
// are held to them too, and have full rights on each key that they declare.
type rules struct {
	reads    []string // patterns of keys that are read alone
	keys     []string // patterns
	channels []string
	commands []string
}

// connecting is what the client library sends on its own: to find the nodes, and to
// see whether a connection lives.
func connecting() []string { return []string{"ping", "command", "cluster|slots", "asking"} }

// scripting runs the embedded scripts.
func scripting() []string { return []string{"eval", "evalsha", "time"} }

// doorRules let the door record what is submitted, cancel it, read what comes of it, wait for how it ends, and count the
// calls of keys and of queues. One that may run calls itself does what workers do, and counts the sends that got no answer.
func doorRules(env string, direct bool) rules {
	r := rules{
		reads:    []string{class(env, "live")},
		keys:     []string{class(env, "cfg"), class(env, "sub"), class(env, "clm"), class(env, "res"), class(env, "st"), class(env, "rate"), class(env, "fc")},
		channels: []string{class(env, "wake"), class(env, "stop")},
		commands: []string{"get", "set", "hget", "hmget", "hset", "pexpireat", "publish", "subscribe", "unsubscribe"},
	}
	if direct {
		r.keys = append(r.keys, class(env, "cap"))
		r.commands = append(runCommands(), "incr")
	}
	for _, c := range []string{"zadd", "zcard", "zrange", "zremrangebyscore", "zscore", "xrange", "hgetall", "hincrby", "pexpire"} {
		r.commands = appendNew(r.commands, c)
	}
	return r.with(connecting(), scripting())
}

// workerRules let workers claim, be admitted, hear of cancellations, and store how it ended. What is
// submitted they touch where a dead letter's new run moves its deadline.
func workerRules(env string) rules {
	return rules{
		reads:    []string{class(env, "live")},
		keys:     []string{class(env, "cfg"), class(env, "sub"), class(env, "clm"), class(env, "res"), class(env, "st"), class(env, "cap")},
		channels: []string{class(env, "wake"), class(env, "stop")},
		commands: runCommands(),
	}.with(connecting(), scripting())
}

// runCommands are what running a call takes.
func runCommands() []string {
	return []string{
		"get", "mget", "set", "hget", "hmget", "hset", "hdel", "hincrby", "del", "pexpireat", "publish", "subscribe", "unsubscribe",
		"zadd", "zcard", "zcount", "zrangebyscore", "zrank", "zrem", "zscore", "xadd", "xrevrange", "xtrim",
	}
}

// adminRules let operators see how much of each target's capacity is in use, and change what holds while processes run: nobody else may.
// Of results they read those of the doctor's own messages alone; set marks a new store.
func adminRules(env string) rules {
	return rules{
		reads:    []string{class(env, "res:"+llmq.TenantHash(llmq.DoctorTenant))},
		keys:     []string{class(env, "cfg"), class(env, "cap"), class(env, "live")},
		commands: []string{"get", "hdel", "hget", "hmget", "hset", "lpush", "lrange", "ltrim", "pttl", "set", "zcount"},
	}.with(connecting(), scripting())
}

// governorRules let the governor see how much of each target's capacity is in use, and leave what doors forecast from.
func governorRules(env string) rules {
	return rules{
		reads:    []string{class(env, "live")},
		keys:     []string{class(env, "cfg"), class(env, "cap"), class(env, "fc")},
		commands: []string{"get", "hget", "hmget", "zcount", "set", "hset", "del", "pexpire"},
	}.with(connecting(), scripting())
}

// class is the pattern of a class's keys, or channels, in one environment.
func class(env, name string) string { return "llmq:" + env + ":" + name + ":*" }

func (r rules) with(more ...[]string) rules {
	for _, m := range more {
		r.commands = append(r.commands, m...)
	}
	return r
}

// String is the rules as Valkey reads them, in the order in which it lists them: what
// is read back then equals what was set.
func (r rules) String() string {
	words := []string{"on"}
	for _, k := range r.reads {
		words = append(words, "%R~"+k)
	}
	for _, k := range r.keys {
		words = append(words, "~"+k)
	}
	words = append(words, "resetchannels")
	for _, c := range r.channels {
		words = append(words, "&"+c)
	}
	words = append(words, "-@all")
	for _, c := range r.commands {
		words = append(words, "+"+c)
	}
	return strings.Join(words, " ")
}
