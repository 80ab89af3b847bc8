package offload

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// refTo announces a body.
func refTo(key string, body []byte) llmq.Ref {
	sum := sha256.Sum256(body)
	return llmq.Ref{Key: key, SHA256: hex.EncodeToString(sum[:]), Bytes: int64(len(body))}
}

func formed(ref llmq.Ref) bool {
	return legal(ref.Key) && ref.Bytes >= 1 && ref.Bytes <= MaxBytes && len(ref.SHA256) == 2*sha256.Size
}

// announced returns a body that is the one which ref announces.
func announced(ref llmq.Ref, body []byte) ([]byte, error) {
	if refTo(ref.Key, body) != ref {
		return nil, llmq.Errorf(llmq.CodeBadEnvelope, "the stored body is not the one that was announced").At("ref").Because(llmq.ErrBodySwapped)
	}
	return body, nil
}

func missing(cause error) error {
	return llmq.Errorf(llmq.CodeBadEnvelope, "the body that ref names is not stored").At("ref").Because(cause)
}

func unreachable(doing, key string, err error) error {
	return llmq.Errorf(llmq.CodeQueueUnavailable, "the body store can't be reached").Because(fmt.Errorf("%s %s: %w", doing, key, err))
}
