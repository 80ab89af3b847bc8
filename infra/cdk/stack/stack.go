package stack

import (
	"strconv"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// New adds an environment's stack to an app. It looks nothing up, so it needs neither
// an account nor credentials.
//
// Roles come before what they may use: policies of queues name the roles that may
// send, and users of the cache are made by role.
func New(app constructs.Construct, env Environment, code Code) awscdk.Stack {
	props := &awscdk.StackProps{
		Description:           jsii.String("llmq " + env.Config.Env + ": a queue for LLM calls"),
		Env:                   &awscdk.Environment{},
		Tags:                  &map[string]*string{"llmq:env": jsii.String(env.Config.Env)},
		TerminationProtection: jsii.Bool(env.production()),
		AnalyticsReporting:    jsii.Bool(false),
	}
	if env.Config.Region != "" {
		props.Env.Region = jsii.String(env.Config.Region)
	}
	s := awscdk.NewStack(app, jsii.String(env.name()), props)

	door, operator := newMember(s, env, "enqueue"), newMember(s, env, "admin")
	workers := map[llmq.Lane]member{}
	var allWorkers []member
	for _, l := range env.lanes() {
		workers[l] = newMember(s, env, "worker-"+string(l))
		allWorkers = append(allWorkers, workers[l])
	}
	jobs := map[string]member{}
	for _, j := range env.Config.Jobs {
		jobs[j.Name] = newMember(s, env, jobPart(j))
		allWorkers = append(allWorkers, jobs[j.Name])
	}

	logs := newAccessLogs(s, env)
	store := newStorage(s, env, logs)
	queues := queuesOf(env)
	net := newNetwork(s, env)
	cache := newCache(s, env, net)
	keys := newKeyring(s, env, logs)

	grantDoor(door, env, queues, store)
	keys.grantChecks(door)
	cache.admit(door, cache.door)
	for _, l := range env.lanes() {
		grantWorker(workers[l], env, l, queues.of(l), store)
		keys.grantLookups(workers[l])
		cache.admit(workers[l], cache.worker)
	}
	for _, j := range env.Config.Jobs {
		grantMessages(jobs[j.Name], env, pairs{jobPair(env, j)}, store) // what its functions do besides, their team grants to its role
		keys.grantLookups(jobs[j.Name])
		cache.admit(jobs[j.Name], cache.worker)
	}
	grantAdmin(operator, env, queues, store)
	keys.grantVerbs(operator)
	keys.grantTrail(operator)
	cache.admit(operator, cache.admin)

	place := placement{env: env, code: code, cache: cache, bucket: store.bucket, keys: keys, net: net, senders: []member{door, operator}, workers: allWorkers}
	watch := constructs.NewConstruct(s, jsii.String("Watch"))
	alarms := newBell(watch, env)
	shift := newRollout(s, env)
	doorFunction := shift.alias(door, place.door(door))
	adminFunction := place.admin(operator)
	staff := parties{door: door, operator: operator, workers: workers, feeds: map[llmq.Lane]*string{}, jobs: jobs, bell: alarms}
	for _, l := range env.lanes() {
		staff.feeds[l] = shift.alias(workers[l], place.worker(workers[l], l)).FunctionArn()
	}
	for _, m := range env.Config.Models {
		newModel(s, env, m, staff)
	}
	for _, j := range env.Config.Jobs {
		newJobs(s, env, j, shift.alias(jobs[j.Name], place.jobs(jobs[j.Name], j)).FunctionArn(), staff)
	}

	newGovernor(s, env, place, queues)
	newProducerPolicies(s, env, queues, store, cache)

	logging := newGatewayLogging(s)
	newDoorAPI(s, env, doorFunction, logging)
	newAdminAPI(s, env, adminFunction, logging)

	watchDoor(watch, env, alarms)
	watchFunctions(watch, env, alarms)
	watchTargets(watch, env, alarms)
	watchCache(watch, env, alarms)
	newDashboard(watch, env)
	newBudget(watch, env)
	if n := env.neededConcurrency(); n > 0 {
		output(s, "NeededConcurrency", jsii.String(strconv.Itoa(n)), "quota of concurrent executions that the reserved ones take; aws lambda get-account-settings tells the account's")
	}
	output(s, "QueuePrefix", jsii.String(env.Config.Queues.Prefix), "queues are PREFIX-MODEL-rt, PREFIX-MODEL and PREFIX-MODEL-bulk")
	output(s, "Dashboard", jsii.String("https://"+*s.Region()+".console.aws.amazon.com/cloudwatch/home?region="+*s.Region()+"#dashboards/dashboard/"+env.name()), "how it does, at a glance")
	return s
}

// output shows a value once the stack is deployed, under this name: the command line reads some of them.
func output(scope constructs.Construct, name string, value *string, description string) {
	awscdk.NewCfnOutput(scope, jsii.String(name), &awscdk.CfnOutputProps{Value: value, Description: jsii.String(description)}).OverrideLogicalId(jsii.String(name))
}
