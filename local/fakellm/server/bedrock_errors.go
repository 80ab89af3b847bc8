package server

import "net/http"

// bedrockErrors are the exceptions of Bedrock Runtime and those of its front door, by name.
func bedrockErrors() map[string]fault {
	return map[string]fault{
		"ValidationException":           {status: http.StatusBadRequest, message: "The request is invalid."},
		"ServiceQuotaExceededException": {status: http.StatusBadRequest, message: "Your request exceeds the service quota for your account."},
		"ConflictException":             {status: http.StatusBadRequest, message: "Error occurred because of a conflict while performing an operation."},
		"SerializationException":        {status: http.StatusBadRequest, message: "The request body is not valid JSON of the expected shape."},
		"AccessDeniedException":         {status: http.StatusForbidden, message: "You don't have access to the model with the specified model ID."},
		"ResourceNotFoundException":     {status: http.StatusNotFound, message: "The specified resource ARN was not found."},
		"UnknownOperationException":     {status: http.StatusNotFound, message: "The operation is unknown."},
		"ModelTimeoutException":         {status: http.StatusRequestTimeout, message: "The request took too long to process."},
		"ModelErrorException":           {status: http.StatusFailedDependency, message: "The request failed due to an error while processing the model."},
		"ThrottlingException":           {status: http.StatusTooManyRequests, message: "Too many requests, please wait before trying again."},
		"ModelNotReadyException":        {status: http.StatusTooManyRequests, message: "The model specified in the request is not ready to serve inference requests."},
		"ModelStreamErrorException":     {status: http.StatusFailedDependency, message: "An error occurred while streaming the response. Retry your request."},
		"InternalServerException":       {status: http.StatusInternalServerError, message: "An internal server error occurred."},
		"ServiceUnavailableException":   {status: http.StatusServiceUnavailable, message: "Bedrock is unable to process your request."},

		"MissingAuthenticationTokenException": {status: http.StatusForbidden, message: "Missing Authentication Token"},
		"UnrecognizedClientException":         {status: http.StatusForbidden, message: "The security token included in the request is invalid."},
		"IncompleteSignatureException":        {status: http.StatusForbidden, message: "The Authorization header is not a complete AWS4-HMAC-SHA256 signature."},
		"InvalidSignatureException":           {status: http.StatusForbidden, message: "The request signature we calculated does not match the signature you provided."},
	}
}

// bedrockErrorsByStatus are those that a bare status asks for.
func bedrockErrorsByStatus() map[int]string {
	return map[int]string{
		http.StatusBadRequest:          "ValidationException",
		http.StatusForbidden:           "AccessDeniedException",
		http.StatusNotFound:            "ResourceNotFoundException",
		http.StatusRequestTimeout:      "ModelTimeoutException",
		http.StatusFailedDependency:    "ModelErrorException",
		http.StatusTooManyRequests:     "ThrottlingException",
		http.StatusInternalServerError: "InternalServerException",
		http.StatusServiceUnavailable:  "ServiceUnavailableException",
	}
}

// errorTypeSuffix follows the exception's name in the header, as AWS's own answers have it;
// clients cut it off at the colon.
const errorTypeSuffix = ":http://internal.amazon.com/coral/com.amazon.bedrock/"

func validation(message string) *fault {
	return &fault{code: "ValidationException", message: message}
}

type bedrockMessage struct {
	Message string `json:"message"`
}

// completeBedrock fills in what f leaves open. Where neither the code nor the status names an
// exception (a 502 of a proxy in between), the code stays empty.
func completeBedrock(f fault) fault {
	if f.code == "" {
		f.code = bedrockErrorsByStatus()[f.status]
	}
	f = f.or(bedrockErrors()[f.code])
	if f.status == 0 {
		f.status = http.StatusInternalServerError
	}
	if f.message == "" {
		f.message = http.StatusText(f.status)
	}
	return f
}

// fault writes an exception: its name in a header, {"message": …} as the body.
func (bedrockWire) fault(f fault, id string) reply {
	f = completeBedrock(f)
	re := bedrockReply(f.status, id, bedrockMessage{f.message})
	if f.code != "" {
		re.header.Set("X-Amzn-Errortype", f.code+errorTypeSuffix)
	}
	return re
}
