package stack

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// gatewayLogging lets API Gateway write logs. It is one setting for all APIs of an
// account in a region, so it stays when the stack goes: others may rest on it.
type gatewayLogging struct{ account awsapigateway.CfnAccount }

func newGatewayLogging(s awscdk.Stack) gatewayLogging {
	scope := constructs.NewConstruct(s, jsii.String("GatewayLogging"))
	// API Gateway names execution logs by itself, and refuses a role that can't do all of
	// this to any group: the list is that of AmazonAPIGatewayPushToCloudWatchLogs.
	write := awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions: jsii.Strings("logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogGroups", "logs:DescribeLogStreams",
			"logs:PutLogEvents", "logs:GetLogEvents", "logs:FilterLogEvents"),
		Resources: jsii.Strings("*"),
	})
	role := awsiam.NewRole(scope, jsii.String("Role"), &awsiam.RoleProps{
		AssumedBy:   awsiam.NewServicePrincipal(jsii.String("apigateway.amazonaws.com"), nil),
		Description: jsii.String("lets API Gateway write the logs of this region's APIs"),
		// Inside the role: a policy of its own would go with the stack, and leave the role bare.
		InlinePolicies: &map[string]awsiam.PolicyDocument{
			"WriteGatewayLogs": awsiam.NewPolicyDocument(&awsiam.PolicyDocumentProps{Statements: &[]awsiam.PolicyStatement{write}}),
		},
	})
	account := awsapigateway.NewCfnAccount(scope, jsii.String("Account"), &awsapigateway.CfnAccountProps{CloudWatchRoleArn: role.RoleArn()})
	account.ApplyRemovalPolicy(awscdk.RemovalPolicy_RETAIN, nil)
	role.ApplyRemovalPolicy(awscdk.RemovalPolicy_RETAIN)
	return gatewayLogging{account: account}
}

// gatewayResponse is an error that API Gateway answers before, or instead of, the door.
type gatewayResponse struct {
	id       string
	kind     awsapigateway.ResponseType
	code     llmq.Code
	message  string
	awsError string // what the Bedrock SDKs read
}

// gatewayResponses are the errors that callers can meet. The last two catch the rest,
// with the status that API Gateway gives them.
func gatewayResponses() []gatewayResponse {
	return []gatewayResponse{
		{"Throttled", awsapigateway.ResponseType_THROTTLED(), llmq.CodeNoCapacity, "the API or the door takes no more calls at the moment", "ThrottlingException"},
		{"TooLarge", awsapigateway.ResponseType_REQUEST_TOO_LARGE(), llmq.CodeTooLarge, "the request is larger than the API takes", "ValidationException"},
		{"NoReply", awsapigateway.ResponseType_INTEGRATION_TIMEOUT(), llmq.CodeTimeout, "the door gave no reply in time; the call may still be running", "ModelTimeoutException"},
		{"DoorFailed", awsapigateway.ResponseType_INTEGRATION_FAILURE(), llmq.CodeInternal, "the door failed; the call may still be running", "InternalServerException"},
		{"ClientError", awsapigateway.ResponseType_DEFAULT_4XX(), llmq.CodeInvalidRequest, "the API refused the request", "ValidationException"},
		{"ServerError", awsapigateway.ResponseType_DEFAULT_5XX(), llmq.CodeInternal, "the API failed", "InternalServerException"},
	}
}

// addGatewayResponses gives the gateway's own errors the shape of the door's: code,
// headers and body. The gateway can't tell callers apart, so the body holds what both
// read: OpenAI's error, and the message of Bedrock's.
func addGatewayResponses(api awsapigateway.RestApi) {
	for _, r := range gatewayResponses() {
		options := &awsapigateway.GatewayResponseOptions{
			Type: r.kind, ResponseHeaders: r.headers(), Templates: &map[string]*string{"application/json": jsii.String(r.body())},
		}
		if !r.catchAll() {
			options.StatusCode = jsii.String(strconv.Itoa(r.code.Info().Status))
		}
		api.AddGatewayResponse(jsii.String(r.id), options)
	}
}

// catchAll reports whether r stands for many errors, of many statuses.
func (r gatewayResponse) catchAll() bool {
	kind := *r.kind.ResponseType()
	return kind == "DEFAULT_4XX" || kind == "DEFAULT_5XX"
}

// headers are those of the door's errors. Values are constants, hence the quotes.
func (r gatewayResponse) headers() *map[string]*string {
	retry := r.code.Info().Retry
	h := map[string]*string{
		"X-LLMQ-Error-Code": jsii.String("'" + string(r.code) + "'"),
		"X-Should-Retry":    jsii.String("'" + strconv.FormatBool(retry) + "'"),
		"X-Amzn-Errortype":  jsii.String("'" + r.awsError + "'"),
	}
	if retry {
		h["Retry-After"] = jsii.String("'1'")
	}
	return &h
}

func (r gatewayResponse) body() string {
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	}
	body, err := json.Marshal(struct {
		Error   inner  `json:"error"`
		Message string `json:"message"`
	}{inner{Message: r.message, Type: openAIType(r.code.Info()), Code: string(r.code)}, r.message})
	if err != nil {
		panic("stack: an error body can't be encoded: " + err.Error()) // structs of strings always can
	}
	return string(body)
}

// openAIType is the type of OpenAI's error, as the door has it.
func openAIType(info llmq.CodeInfo) string {
	switch {
	case info.Status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case info.Status >= http.StatusInternalServerError:
		return "server_error"
	}
	return "invalid_request_error"
}
