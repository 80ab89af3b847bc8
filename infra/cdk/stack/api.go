package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

const (
	// stage is part of the default endpoint's URL, and of no path that the functions see.
	stage = "llmq"
	// doorMinutes is the longest that API Gateway lets a streaming integration run.
	doorMinutes = 15
)

// throttle bounds a stage, before a function runs and is paid.
type throttle struct{ perSecond, burst float64 }

// newDoorAPI is the callers' API. It lets everything through to the door, which has
// the one table of routes and checks the key.
func newDoorAPI(s awscdk.Stack, env Environment, door awslambda.IFunction, logging gatewayLogging) {
	scope := constructs.NewConstruct(s, jsii.String("DoorAPI"))
	api := newAPI(scope, env, env.name(), "callers of llmq "+env.Config.Env, true, logging, throttle{perSecond: 100, burst: 200})
	integration := awsapigateway.NewLambdaIntegration(door, &awsapigateway.LambdaIntegrationOptions{
		ResponseTransferMode: awsapigateway.ResponseTransferMode_STREAM,
		Timeout:              awscdk.Duration_Minutes(jsii.Number(doorMinutes)),
		AllowTestInvoke:      jsii.Bool(false),
	})
	// Bearer keys are the door's business: IAM and API Gateway's keys fit no SDK.
	open := &awsapigateway.MethodOptions{AuthorizationType: awsapigateway.AuthorizationType_NONE}
	for _, r := range []awsapigateway.IResource{api.Root(), api.Root().AddResource(jsii.String("{proxy+}"), nil)} {
		r.AddMethod(jsii.String("ANY"), integration, open)
	}
	addGatewayResponses(api)
	newFirewall(scope, env, api)
	if env.Config.Deploy.DomainName != "" {
		output(scope, "DomainTarget", api.DomainName().DomainNameAliasDomainName(), "what the DNS record of the API's name must point to")
	}
	output(scope, "OpenAIBaseURL", baseURL(env, api, "/v1"), "OPENAI_BASE_URL of callers")
	output(scope, "BedrockEndpoint", baseURL(env, api, "/"), "AWS_ENDPOINT_URL_BEDROCK_RUNTIME of callers")
}

// newAdminAPI is the operators' API (SECURITY-DESIGN KT7). Every path is listed, and
// every method asks for IAM: a caller's key opens nothing here.
func newAdminAPI(s awscdk.Stack, env Environment, admin awslambda.IFunction, logging gatewayLogging) {
	scope := constructs.NewConstruct(s, jsii.String("AdminAPI"))
	api := newAPI(scope, env, env.name("admin"), "operators of llmq "+env.Config.Env, false, logging, throttle{perSecond: 5, burst: 10})
	integration := awsapigateway.NewLambdaIntegration(admin, &awsapigateway.LambdaIntegrationOptions{
		Timeout: awscdk.Duration_Seconds(jsii.Number(29)), AllowTestInvoke: jsii.Bool(false),
	})
	signed := &awsapigateway.MethodOptions{AuthorizationType: awsapigateway.AuthorizationType_IAM}
	reads := map[string]awsapigateway.Resource{}
	for _, path := range []string{"health", "status", "queues", "settings", "routing", "limiter", "breaker", "fallback"} {
		reads[path] = api.Root().AddResource(jsii.String(path), nil)
		reads[path].AddMethod(jsii.String("GET"), integration, signed)
	}
	for _, v := range []struct { // in this order: the deployment's name is made of it
		of    string
		verbs []string
	}{
		{"queues", []string{"dead", "redrive", "purge", "pause", "resume"}},
		{"settings", []string{"set", "unset", "reset"}},
		{"routing", []string{"set", "kill", "reset"}},
		{"limiter", []string{"reset"}},
		{"breaker", []string{"reset"}},
		{"fallback", []string{"set", "test", "reset"}},
	} {
		for _, verb := range v.verbs {
			reads[v.of].AddResource(jsii.String(verb), nil).AddMethod(jsii.String("POST"), integration, signed)
		}
	}
	reads["settings"].AddResource(jsii.String("audit"), nil).AddMethod(jsii.String("GET"), integration, signed)
	keys := api.Root().AddResource(jsii.String("keys"), nil)
	keys.AddMethod(jsii.String("GET"), integration, signed)
	keys.AddResource(jsii.String("{kid}"), nil).AddMethod(jsii.String("GET"), integration, signed)
	for _, verb := range []string{"create", "rotate", "revoke"} {
		keys.AddResource(jsii.String(verb), nil).AddMethod(jsii.String("POST"), integration, signed)
	}
	output(scope, "AdminURL", api.UrlForPath(jsii.String("/")), "the admin API; requests are signed for execute-api")
}

// newAPI is a Regional REST API. An edge-optimised one, CDK's default, would cut a
// connection that is silent for 30 s; a Regional one waits 5 min. One that is named answers under the deployment's own name.
func newAPI(scope constructs.Construct, env Environment, name, description string, named bool, logging gatewayLogging, t throttle) awsapigateway.RestApi {
	access := newLog(scope, "AccessLog", env, "/llmq/"+name+"/access")
	props := &awsapigateway.RestApiProps{
		RestApiName:    jsii.String(name),
		Description:    jsii.String(description),
		EndpointTypes:  &[]awsapigateway.EndpointType{awsapigateway.EndpointType_REGIONAL},
		CloudWatchRole: jsii.Bool(false), // see gatewayLogging
		DeployOptions: &awsapigateway.StageOptions{
			StageName:            jsii.String(stage),
			ThrottlingRateLimit:  jsii.Number(t.perSecond),
			ThrottlingBurstLimit: jsii.Number(t.burst),
			LoggingLevel:         awsapigateway.MethodLoggingLevel_ERROR,
			DataTraceEnabled:     jsii.Bool(false), // it would log prompts
			MetricsEnabled:       jsii.Bool(true),
			AccessLogDestination: awsapigateway.NewLogGroupLogDestination(access),
			AccessLogFormat:      awsapigateway.AccessLogFormat_Custom(jsii.String(accessLog)),
		},
	}
	if named {
		underName(scope, env, props)
	} else {
		props.Policy = onlyOperators(env)
	}
	api := awsapigateway.NewRestApi(scope, jsii.String("API"), props)
	api.DeploymentStage().Node().AddDependency(logging.account)
	return api
}

// onlyOperators denies the operators' API to all but those that the file lists (SECURITY-DESIGN KT7); nil where it lists none. It lets
// nobody in: that is for their own policies.
func onlyOperators(env Environment) awsiam.PolicyDocument {
	if len(env.Config.Deploy.OperatorARNs) == 0 {
		return nil
	}
	return awsiam.NewPolicyDocument(&awsiam.PolicyDocumentProps{Statements: &[]awsiam.PolicyStatement{awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Sid: jsii.String("OnlyListedOperators"), Effect: awsiam.Effect_DENY,
		Principals: &[]awsiam.IPrincipal{awsiam.NewAnyPrincipal()},
		Actions:    jsii.Strings("execute-api:Invoke"), Resources: jsii.Strings("execute-api:/*"),
		Conditions: &map[string]any{"ArnNotEquals": map[string]any{"aws:PrincipalArn": env.Config.Deploy.OperatorARNs}},
	})}})
}

// accessLog is a line of JSON without headers, query, path parameters or body
// (SECURITY-DESIGN DP4).
const accessLog = `{"request_id":"$context.requestId","time":"$context.requestTimeEpoch","method":"$context.httpMethod",` +
	`"resource":"$context.resourcePath","status":"$context.status","gateway_error":"$context.error.responseType",` +
	`"latency_ms":"$context.responseLatency","integration_ms":"$context.integrationLatency","bytes":"$context.responseLength",` +
	`"source_ip":"$context.identity.sourceIp","caller":"$context.identity.userArn"}`
