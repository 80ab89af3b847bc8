package tracing

import "go.opentelemetry.io/otel/attribute"

// The names of OpenTelemetry's conventions: HTTP (stable); messaging and AWS SQS as of 1.43; generative AI as of 1.37 and later, where
// gen_ai.provider.name took gen_ai.system's place. They are spelled here because the library's own list has lost the last group.
const (
	errorType     = attribute.Key("error.type")
	serverAddress = attribute.Key("server.address")
	serverPort    = attribute.Key("server.port")

	httpMethod = attribute.Key("http.request.method")
	httpRoute  = attribute.Key("http.route")
	httpStatus = attribute.Key("http.response.status_code")
	urlScheme  = attribute.Key("url.scheme")
	userHash   = attribute.Key("user.hash")
	sessionID  = attribute.Key("session.id")

	messagingSystem      = attribute.Key("messaging.system")
	messagingOperation   = attribute.Key("messaging.operation.name")
	messagingType        = attribute.Key("messaging.operation.type")
	messagingDestination = attribute.Key("messaging.destination.name")
	messagingMessageID   = attribute.Key("messaging.message.id")
	messagingSize        = attribute.Key("messaging.message.envelope.size")

	genAIOperation    = attribute.Key("gen_ai.operation.name")
	genAIProvider     = attribute.Key("gen_ai.provider.name")
	genAIRequestModel = attribute.Key("gen_ai.request.model")
	genAIModel        = attribute.Key("gen_ai.response.model")
	genAIInput        = attribute.Key("gen_ai.usage.input_tokens")
	genAIOutput       = attribute.Key("gen_ai.usage.output_tokens")
)

// Our own names.
const (
	ownRequestID = attribute.Key("llmq.request_id") // the caller's id, or the one that he was given
	ownTenant    = attribute.Key("llmq.tenant")
	ownLane      = attribute.Key("llmq.lane")
	ownModel     = attribute.Key("llmq.model") // as the caller named it: alias or alias@target
	ownTarget    = attribute.Key("llmq.target")
	ownAttempt   = attribute.Key("llmq.attempt")  // of the call, from 1 on, over all targets and workers
	ownFallback  = attribute.Key("llmq.fallback") // not the first target
	ownDirect    = attribute.Key("llmq.direct")   // run where its caller waits
	ownStream    = attribute.Key("llmq.stream")
	ownWait      = attribute.Key("llmq.queue_wait_ms") // since the message was first sent
	ownReceives  = attribute.Key("llmq.receive_count") // of the message; 2 and more: it was handed back, or its worker died
	ownTakeovers = attribute.Key("llmq.takeovers")     // workers that died over the call
	ownAttempts  = attribute.Key("llmq.attempts")      // made for the call so far
	ownOutcome   = attribute.Key("llmq.outcome")       // what became of the message, from a short list
	ownAcked     = attribute.Key("llmq.acked")         // it is deleted
	ownWorker    = attribute.Key("llmq.worker")        // where the logs of the run are
)
