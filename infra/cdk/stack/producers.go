package stack

import (
	"slices"
	"strconv"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// producersQueues is how many queues a producer's policy names, beside all else that it says, within the 6,144 characters of a
// managed policy.
const producersQueues = 35

// newProducerPolicies makes for each producer the policy that its team attaches to its role, which is theirs: what a producer may do
// beside what the queues let it. It is named llmq-ENV-producer-NAME, with -2 and so on where the queues need more than one.
func newProducerPolicies(s awscdk.Stack, env Environment, queues pairs, store storage, c cache) {
	scope := constructs.NewConstruct(s, jsii.String("Producers"))
	for _, p := range env.Config.Producers {
		var own []awsiam.PolicyStatement
		allow := func(sid string, actions []string, resources ...*string) {
			own = append(own, statement(sid, actions, resources))
		}
		allow("PutLargeBodies", []string{"s3:PutObject"}, store.incoming([]config.Producer{p})...)
		if p.Program || len(p.Replies) > 0 { // what is too large for a reply queue lies there, too
			allow("GetItsResults", []string{"s3:GetObject"}, store.of("res", p.Tenant))
		}
		if p.Program {
			allow("PutItsRequests", []string{"s3:PutObject"}, store.of("off", p.Tenant))
			allow("ReadSalt", []string{"secretsmanager:GetSecretValue"}, jsii.String(env.Config.IDSalt.ARN))
			allow("SignInToCache", []string{"elasticache:Connect"}, c.resource.AttrArn(), c.programs[p.Name].resource.AttrArn())
		}
		n := 0
		for some := range slices.Chunk(queues.sourceARNs(scope), producersQueues) {
			n++
			name := env.name("producer-" + p.Name)
			if n > 1 {
				name += "-" + strconv.Itoa(n)
			}
			statements := append(own, statement("SendCalls", []string{"sqs:SendMessage"}, some))
			own = nil
			awsiam.NewManagedPolicy(scope, jsii.String(name), &awsiam.ManagedPolicyProps{
				ManagedPolicyName: jsii.String(name), Statements: &statements,
				Description: jsii.String("what the producer " + p.Name + " of llmq " + env.Config.Env + " may do; attach it to its role"),
			})
		}
	}
}

func statement(sid string, actions []string, resources []*string) awsiam.PolicyStatement {
	return awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{Sid: jsii.String(sid), Actions: jsii.Strings(actions...), Resources: &resources})
}

// programUser is the name of a program's user of the cache. ElastiCache takes 40 characters, to which configuration holds it.
func (e Environment) programUser(p config.Producer) string { return e.name("prog-" + p.Name) }

// programRules let a Go program of one tenant submit, cancel, wait for its calls and read what comes of them, and see nothing of
// another tenant's (SECURITY-DESIGN VK1). It runs no call itself: who may is trusted like a worker.
func programRules(env, tenant string) rules {
	of := func(c string) string { return "llmq:" + env + ":" + c + ":" + llmq.TenantHash(tenant) + ":*" }
	return rules{
		reads:    []string{class(env, "live"), class(env, "cfg")},
		keys:     []string{of("sub"), of("clm"), of("res"), of("st")},
		channels: []string{of("wake"), class(env, "stop")},
		commands: []string{"get", "set", "hget", "hmget", "hgetall", "hset", "pexpireat", "publish", "subscribe", "unsubscribe", "xrange"},
	}.with(connecting(), scripting())
}
