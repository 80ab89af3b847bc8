package provider

import "slices"

// KnownKind returns a provider's own error code when it is one that providers document,
// and "" when it is not: what else stands there is free text that may quote a prompt,
// and must not reach a log or a metric.
func KnownKind(kind string) string {
	if slices.Contains(knownKinds(), kind) {
		return kind
	}
	return ""
}

// knownKinds are the codes of OpenAI and of those who speak its API, then Bedrock's
// exceptions.
func knownKinds() []string {
	return []string{
		"rate_limit_exceeded", "rate_limit_error", "tokens", "requests", "insufficient_quota", "billing_hard_limit_reached",
		"context_length_exceeded", "invalid_api_key", "invalid_request_error", "authentication_error", "permission_error",
		"model_not_found", "not_found_error", "server_error", "api_error", "overloaded_error", "server_is_overloaded", "slow_down", "capacity_exceeded",
		"content_filter", "content_policy_violation", "unsupported_parameter", "unsupported_value", "invalid_value", "timeout",
		"ThrottlingException", "ServiceQuotaExceededException", "ModelNotReadyException", "ServiceUnavailableException",
		"InternalServerException", "ModelTimeoutException", "ModelErrorException", "ModelStreamErrorException", "ValidationException",
		"ConflictException", "AccessDeniedException", "ResourceNotFoundException", "UnrecognizedClientException", "ExpiredTokenException",
		"InvalidSignatureException", "MissingAuthenticationTokenException", "UnknownOperationException",
	}
}
