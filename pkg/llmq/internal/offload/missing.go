package offload

import (
	"errors"

	"github.com/aws/smithy-go"
)

// isMissing tells an object that is not there from a store that fails. S3 answers
// AccessDenied for a missing key to a role that may not list the bucket, as ours may
// not.
func isMissing(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode() {
	case "NoSuchKey", "NotFound", "AccessDenied":
		return true
	}
	return false
}
