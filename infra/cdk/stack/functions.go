package stack

import (
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// member is a function before its code: a name, a log and a role of its own.
type member struct {
	scope constructs.Construct
	part  string // of the environment, such as worker-rt
	name  string // of the function
	logs  awslogs.LogGroup
	role  awsiam.Role
}

func newMember(s awscdk.Stack, env Environment, part string) member {
	m := member{scope: constructs.NewConstruct(s, jsii.String(part)), part: part, name: env.name(part)}
	m.logs = newLog(m.scope, "Logs", env, "/aws/lambda/"+m.name)
	m.role = awsiam.NewRole(m.scope, jsii.String("Role"), &awsiam.RoleProps{
		AssumedBy:   awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
		Description: jsii.String("what " + m.name + " may do"),
	})
	m.allow("Log", []string{"logs:CreateLogStream", "logs:PutLogEvents"}, m.logs.LogGroupArn()) // ends in :*, its streams
	return m
}

// allow adds a statement to the role. Nothing is added for no resources.
func (m member) allow(sid string, actions []string, resources ...*string) {
	m.allowWhen(sid, actions, nil, resources...)
}

// mostNamed bounds the resources of a statement, so that it fits into a managed policy's 6,144 characters, into which the
// library moves what an inline policy has no room for.
const mostNamed = 50

func (m member) allowWhen(sid string, actions []string, when *map[string]any, resources ...*string) {
	n := 0
	for some := range slices.Chunk(resources, mostNamed) {
		n++
		id := sid
		if n > 1 {
			id += strconv.Itoa(n)
		}
		m.role.AddToPolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Sid: jsii.String(id), Actions: jsii.Strings(actions...), Resources: &some, Conditions: when,
		}))
	}
}

// placement is what all functions share.
type placement struct {
	env    Environment
	code   Code
	cache  cache
	bucket awss3.Bucket
	keys   keyring
	net    network

	senders, workers []member // whose messages are believed on queues, and on dead-letter queues
}

// part is a function as its alarms and the dashboard know it.
type part struct {
	part     string
	timeout  time.Duration
	reserved int // 0: nothing
}

// functions lists those of the environment.
func (e Environment) functions() []part {
	parts := []part{{part: "enqueue", timeout: e.doorTimeout(), reserved: reservedDoor}, {part: "admin", timeout: adminTimeout}}
	for _, l := range e.lanes() {
		parts = append(parts, part{part: "worker-" + string(l), timeout: e.Config.Lanes[l].FunctionTimeout, reserved: reservedLane(l)})
	}
	for _, j := range e.Config.Jobs {
		parts = append(parts, part{part: jobPart(j), timeout: j.FunctionTimeout(), reserved: j.MaxConcurrency()})
	}
	if e.Config.Governor.Enabled {
		parts = append(parts, part{part: "governor", timeout: adminTimeout})
	}
	if !e.production() {
		for i := range parts {
			parts[i].reserved = 0
		}
	}
	return parts
}

func (e Environment) doorTimeout() time.Duration { return e.Config.Door.Wait + doorMargin }

// roleIDs are what SQS calls members as senders (SECURITY-DESIGN MS1): the deployment's own,
// since a role that is made anew has another.
func roleIDs(members []member) *string {
	var ids []*string
	for _, m := range members {
		ids = append(ids, m.role.RoleId())
	}
	return awscdk.Fn_Join(jsii.String(","), &ids)
}

const (
	minute = time.Minute
	// doorMargin is what the door has left after its longest wait, to answer.
	doorMargin = 30 * time.Second
	// adminTimeout is below the 29 s that a buffered integration waits.
	adminTimeout = 25 * time.Second
	memoryMB     = 256 // of door and admin; they wait more than they compute
)

// sizing is where functions differ.
type sizing struct {
	artifact artifact
	user     user
	peppered bool // it checks or makes keys
	memoryMB int
	timeout  time.Duration
	reserved int  // in production; 0 reserves nothing
	loops    bool // its messages may come back to it many times
	about    string
}

func (p placement) door(m member) awslambda.Function {
	f := p.function(m, sizing{
		artifact: enqueue, user: p.cache.door, peppered: true, memoryMB: memoryMB, timeout: p.env.doorTimeout(),
		reserved: reservedDoor, about: "takes calls and waits for their replies",
	})
	if p.env.production() { // as many doors share a limit that nobody counts
		f.AddEnvironment(jsii.String("LLMQ_DOOR_MAX_CONCURRENCY"), jsii.String(strconv.Itoa(reservedDoor)), nil)
	}
	return f
}

func (p placement) worker(m member, l llmq.Lane) awslambda.Function {
	lane := p.env.Config.Lanes[l]
	return p.function(m, sizing{
		artifact: work, user: p.cache.worker, memoryMB: lane.MemoryMB, timeout: lane.FunctionTimeout,
		reserved: reservedLane(l), loops: true, about: "runs the calls of the " + string(l) + " queues",
	})
}

func (p placement) admin(m member) awslambda.Function {
	return p.function(m, sizing{
		artifact: admin, user: p.cache.admin, peppered: true, memoryMB: memoryMB, timeout: adminTimeout,
		about: "the operators' verbs",
	})
}

func (p placement) function(m member, z sizing) awslambda.Function {
	props := &awslambda.FunctionProps{
		FunctionName: jsii.String(m.name),
		Description:  jsii.String(z.about),
		Runtime:      awslambda.Runtime_PROVIDED_AL2023(),
		Architecture: awslambda.Architecture_ARM_64(),
		Handler:      jsii.String("bootstrap"),
		Code:         awslambda.Code_FromAsset(jsii.String(p.code.path(z.artifact)), nil),
		Role:         m.role,
		LogGroup:     m.logs,
		// The platform's own lines become JSON too, as the function's are.
		LoggingFormat: awslambda.LoggingFormat_JSON,
		MemorySize:    jsii.Number(float64(z.memoryMB)),
		Timeout:       seconds(z.timeout),
		Environment:   p.variables(m, z),
	}
	if p.env.production() && z.reserved > 0 {
		props.ReservedConcurrentExecutions = jsii.Number(float64(z.reserved))
	}
	if p.net.vpc != nil {
		p.net.grant(m)
		props.Vpc, props.VpcSubnets, props.SecurityGroups = p.net.vpc, p.net.subnets, &[]awsec2.ISecurityGroup{p.net.functions}
	}
	if z.loops {
		// Lambda takes a message that is sent again some sixteen times, as a redrive or a resend may, for a loop
		// without an end, and drops it.
		props.RecursiveLoop = awslambda.RecursiveLoop_ALLOW
	}
	return awslambda.NewFunction(m.scope, jsii.String("Function"), props)
}

// variables are what only the deployment knows; all else stands in the packed file.
func (p placement) variables(m member, z sizing) *map[string]*string {
	s := awscdk.Stack_Of(m.scope)
	vars := map[string]*string{
		"LLMQ_REDIS_HOST":        p.cache.host(),
		"LLMQ_REDIS_PORT":        p.cache.port(),
		"LLMQ_REDIS_CACHE_NAME":  jsii.String(p.cache.name),
		"LLMQ_REDIS_USERNAME":    jsii.String(z.user.id),
		"LLMQ_S3_OFFLOAD_BUCKET": p.bucket.BucketName(),
		"LLMQ_S3_STATE_BUCKET":   p.keys.bucket.BucketName(),
		"LLMQ_SQS_SENDER_IDS":    roleIDs(p.senders),
		"LLMQ_SQS_WORKER_IDS":    roleIDs(p.workers),
		"LLMQ_SQS_URL_BASE":      jsii.String("https://sqs." + *s.Region() + "." + *s.UrlSuffix() + "/" + *s.Account()),
	}
	if z.peppered {
		vars["LLMQ_KEY_PEPPER_ARN"] = p.keys.pepper
	}
	return &vars
}

func seconds(d time.Duration) awscdk.Duration {
	return awscdk.Duration_Seconds(jsii.Number(d.Seconds()))
}
