package sqs

import (
	"strings"
	"unicode/utf8"
)

// maxAccessKeyBytes bounds the access key id, which is told as SenderId. IAM allows 128.
const maxAccessKeyBytes = 128

// senderOf returns the access key id of a SigV4 Authorization header:
//
//	AWS4-HMAC-SHA256 Credential=<key>/<date>/<region>/sqs/aws4_request, SignedHeaders=..., Signature=...
//
// The signature is not verified; see the package's doc.
func senderOf(header string) (string, error) {
	if header == "" {
		return "", fault(missingAuthentication, "Request is missing Authentication Token")
	}
	rest, ok := strings.CutPrefix(header, "AWS4-HMAC-SHA256 ")
	if !ok {
		return "", incompleteHeader()
	}
	for part := range strings.SplitSeq(rest, ",") {
		if scope, ok := strings.CutPrefix(strings.TrimSpace(part), "Credential="); ok {
			key, _, scoped := strings.Cut(scope, "/")
			if scoped && key != "" && len(key) <= maxAccessKeyBytes && utf8.ValidString(key) {
				return key, nil
			}
		}
	}
	return "", incompleteHeader()
}

func incompleteHeader() error {
	return fault(incompleteSignature, "Authorization header requires a SigV4 'Credential' parameter.")
}
