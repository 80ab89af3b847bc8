package stack

import (
	"strconv"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// The grants of SECURITY-DESIGN section 11, as far as this release uses them: each
// action is one that the function's code calls, each resource is named.

func grantDoor(m member, env Environment, queues pairs, store storage) {
	m.allow("SendCalls", []string{"sqs:SendMessage"}, queues.sourceARNs(m.scope)...)
	m.allow("PutRequests", []string{"s3:PutObject"}, store.requests())
	m.allow("GetResults", []string{"s3:GetObject"}, store.results())
	m.allow("ReadSalt", []string{"secretsmanager:GetSecretValue"}, pointers(env.doorSecrets())...)
	if !env.direct() {
		return
	}
	// What can't be queued it runs itself: rt calls alone (FEATURES E12).
	m.allow("PutResults", []string{"s3:PutObject"}, store.results())
	grantSpills(m, store)
	grantProviders(m, env, llmq.LaneRT)
}

// grantSpills grants what becomes of a reply that the state store does not take.
func grantSpills(m member, store storage) {
	m.allow("SpillReplies", []string{"s3:PutObject", "s3:GetObject", "s3:DeleteObject"}, store.spills())
}

// grantProviders grants calling the models that have a queue of the lane, and no other.
func grantProviders(m member, env Environment, l llmq.Lane) {
	m.allow("ReadProvidersKeys", []string{"secretsmanager:GetSecretValue"}, pointers(env.providerSecrets(l))...)
	grantBedrock(m, env, l)
}

// grantWorker grants what a lane's worker does with its own queues and models.
func grantWorker(m member, env Environment, l llmq.Lane, queues pairs, store storage) {
	grantMessages(m, env, queues, store)
	grantProviders(m, env, l)
}

// grantMessages grants what any worker does with the messages of its own queues.
func grantMessages(m member, env Environment, queues pairs, store storage) {
	m.allow("ReceiveCalls", []string{
		"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes", // what the event source needs of the role
		"sqs:ChangeMessageVisibility",
	}, queues.sourceARNs(m.scope)...)
	m.allow("BuryCalls", []string{"sqs:SendMessage"}, queues.deadARNs(m.scope)...)
	// Put is for a dead letter that is too full to tell its reason.
	var replies []*string
	for _, q := range env.Config.ReplyQueues() {
		replies = append(replies, queueARN(m.scope, q))
	}
	m.allow("TellProducers", []string{"sqs:SendMessage"}, replies...)
	m.allow("TakeRequests", []string{"s3:GetObject", "s3:PutObject", "s3:DeleteObject"}, store.requests())
	m.allow("ReadProducersRequests", []string{"s3:GetObject"}, store.incoming(env.Config.Producers)...)
	m.allow("PutResults", []string{"s3:PutObject"}, store.results())
	grantSpills(m, store)
}

// grantBedrock grants those of them that are Bedrock's.
func grantBedrock(m member, env Environment, l llmq.Lane) {
	s := awscdk.Stack_Of(m.scope)
	var own []string
	through := map[string][]string{} // models by the profile that alone may reach them
	var profiles []string
	for _, model := range env.models(l) {
		for _, t := range model.Targets {
			p, found := env.provider(t.Provider)
			if !found || p.Type != config.ProviderBedrock {
				continue
			}
			region := p.Region
			if region == "" {
				region = *s.Region()
			}
			a := bedrockAccess(t.ModelID, place{partition: *s.Partition(), region: region, account: *s.Account()})
			own = appendNew(own, a.resource)
			if a.through != "" {
				if through[a.resource] == nil {
					profiles = append(profiles, a.resource)
				}
				through[a.resource] = appendNew(through[a.resource], a.through)
			}
		}
	}
	invoke := []string{"bedrock:InvokeModel", "bedrock:InvokeModelWithResponseStream"} // Converse and its stream ask for the same
	m.allow("CallModels", invoke, pointers(own)...)
	for i, profile := range profiles {
		m.allowWhen("CallModelsThrough"+strconv.Itoa(i+1), invoke, &map[string]any{
			"StringEquals": map[string]any{"bedrock:InferenceProfileArn": profile},
		}, pointers(through[profile])...)
	}
}

// grantAdmin grants the operators' verbs. No verb reads what stands in a source queue, and none shows a body.
func grantAdmin(m member, env Environment, queues pairs, store storage) {
	m.allow("ReadDepths", []string{"sqs:GetQueueAttributes", "sqs:PurgeQueue"}, append(queues.sourceARNs(m.scope), queues.deadARNs(m.scope)...)...)
	m.allow("TakeDeadLetters", []string{"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"}, queues.deadARNs(m.scope)...)
	m.allow("SendThemAgain", []string{"sqs:SendMessage"}, queues.sourceARNs(m.scope)...)
	m.allow("PutLargeOnesAside", []string{"s3:PutObject"}, store.requests())
	grantSources(m, env, env.lanes(), env.Config.Jobs)
}

func (e Environment) provider(name string) (config.Provider, bool) {
	for _, p := range e.Config.Providers {
		if p.Name == name {
			return p, true
		}
	}
	return config.Provider{}, false
}

func appendNew(list []string, s string) []string {
	for _, have := range list {
		if have == s {
			return list
		}
	}
	return append(list, s)
}

func pointers(list []string) []*string { return *jsii.Strings(list...) }
