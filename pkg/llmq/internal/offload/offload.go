// Package offload keeps bodies that are too large for a message or a result in the
// data bucket, or, without one, those of messages in the state store. A stored body is named with its hash, which is compared before a byte
// of it is parsed (SECURITY-DESIGN MS4).
package offload

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// MaxBytes bounds a stored body (SECURITY-DESIGN IN1).
const MaxBytes = llmq.MaxBodyBytes

// keyForm is what a key must look like: a class, the tenant's hash, a name; or a producer's
// folder and a name of its own choice, which may have an ending but goes nowhere.
var keyForm = regexp.MustCompile(`^((off|res|spill)/[a-z2-7]{16}/[A-Za-z0-9_-]{1,200}|in/[a-z0-9-]{1,48}/[A-Za-z0-9._-]{1,200})$`)

func legal(key string) bool { return keyForm.MatchString(key) && !strings.Contains(key, "..") }

// Bucket reads and writes bodies. It is safe for concurrent use.
type Bucket struct {
	api   *s3.Client
	name  string
	owner *string
}

// New is the store in the bucket of that name. Unless owner is "", every request asks S3 for
// the bucket to be that account's: one that was deleted and made anew by somebody else gets
// no body of ours, and gives us none.
func New(api *s3.Client, name, owner string) *Bucket {
	b := &Bucket{api: api, name: name}
	if owner != "" {
		b.owner = &owner
	}
	return b
}

// Put stores a body. The same key is overwritten: keys are named by request.
func (b *Bucket) Put(ctx context.Context, key string, body []byte) (llmq.Ref, error) {
	if !legal(key) || len(body) > MaxBytes {
		return llmq.Ref{}, fmt.Errorf("offload: key %q or size %d is illegal", llmq.Clip(key, 80), len(body))
	}
	_, err := b.api.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.name, ExpectedBucketOwner: b.owner, Key: &key, Body: bytes.NewReader(body), ContentType: aws.String("application/json"),
	})
	if err != nil {
		return llmq.Ref{}, unreachable("put", key, err)
	}
	return refTo(key, body), nil
}

// Get fetches a body and checks its length and hash. A reference of another form
// causes no call at all. A body that is missing or is not what the reference
// announced is [llmq.CodeBadEnvelope], a missing one [fs.ErrNotExist] too; a store that fails, [llmq.CodeQueueUnavailable].
func (b *Bucket) Get(ctx context.Context, ref llmq.Ref) ([]byte, error) {
	if !formed(ref) {
		return nil, llmq.Errorf(llmq.CodeBadEnvelope, "ref is not of its form").At("ref")
	}
	out, err := b.api.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, ExpectedBucketOwner: b.owner, Key: &ref.Key})
	if err != nil {
		if isMissing(err) {
			return nil, missing(fmt.Errorf("%w: %w", fs.ErrNotExist, err))
		}
		return nil, unreachable("get", ref.Key, err)
	}
	defer out.Body.Close() // it was read, or the read's error is returned
	body, err := io.ReadAll(io.LimitReader(out.Body, ref.Bytes+1))
	if err != nil {
		return nil, llmq.Errorf(llmq.CodeQueueUnavailable, "the body store broke off").Because(fmt.Errorf("get %s: %w", ref.Key, err))
	}
	return announced(ref, body)
}

// Fetch reads what lies under a key, whatever it is, and false where nothing does. The caller checks what it
// got before it believes any of it. A store that fails is [llmq.CodeQueueUnavailable].
func (b *Bucket) Fetch(ctx context.Context, key string) ([]byte, bool, error) {
	if !legal(key) {
		return nil, false, fmt.Errorf("offload: key %q is illegal", llmq.Clip(key, 80))
	}
	out, err := b.api.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, ExpectedBucketOwner: b.owner, Key: &key})
	if isMissing(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, unreachable("get", key, err)
	}
	defer out.Body.Close() // it was read, or the read's error is returned
	body, err := io.ReadAll(io.LimitReader(out.Body, MaxBytes+1))
	if err != nil {
		return nil, false, llmq.Errorf(llmq.CodeQueueUnavailable, "the body store broke off").Because(fmt.Errorf("get %s: %w", key, err))
	}
	if len(body) > MaxBytes {
		return nil, false, fmt.Errorf("offload: what lies under %s is larger than %d bytes", key, MaxBytes)
	}
	return body, true, nil
}

// Delete removes what lies under a key; nothing there is no error.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if !legal(key) {
		return fmt.Errorf("offload: key %q is illegal", llmq.Clip(key, 80))
	}
	if _, err := b.api.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, ExpectedBucketOwner: b.owner, Key: &key}); err != nil {
		return unreachable("delete", key, err)
	}
	return nil
}
