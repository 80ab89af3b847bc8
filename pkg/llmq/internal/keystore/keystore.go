// Package keystore keeps records in the state bucket: S3 with versions, each write made only over what its
// writer has read (SECURITY-DESIGN KT3).
package keystore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/llm-queue/llmq/pkg/llmq/auth"
)

// maxBytes bounds what is read of an object: a record has a few hundred bytes.
const maxBytes = 64 << 10

// Bucket is the state bucket. It is safe for concurrent use.
type Bucket struct {
	api  *s3.Client
	name string
}

var _ auth.Objects = (*Bucket)(nil)

// New is the bucket of that name.
func New(api *s3.Client, name string) *Bucket { return &Bucket{api: api, name: name} }

// Get reads an object and its ETag. A missing one is [auth.ErrUnknown]; to a role that may not list the bucket, as those
// of door and worker may not, S3 says of it that access is denied.
func (b *Bucket) Get(ctx context.Context, key string) ([]byte, string, error) {
	out, err := b.api.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: &key})
	if is(err, "NoSuchKey", "NotFound", "AccessDenied") {
		return nil, "", fmt.Errorf("get %s: %w: %w", key, auth.ErrUnknown, err)
	}
	if err != nil {
		return nil, "", fmt.Errorf("get %s: %w", key, err)
	}
	defer out.Body.Close() // it was read, or the read's error is returned
	body, err := io.ReadAll(io.LimitReader(out.Body, maxBytes+1))
	if err != nil {
		return nil, "", fmt.Errorf("get %s: %w", key, err)
	}
	if len(body) > maxBytes {
		return nil, "", fmt.Errorf("get %s: it is larger than %d bytes", key, maxBytes)
	}
	return body, aws.ToString(out.ETag), nil
}

// Put writes an object over the version that has the ETag, or a new one where that is "".
func (b *Bucket) Put(ctx context.Context, key string, body []byte, version string) error {
	in := &s3.PutObjectInput{Bucket: &b.name, Key: &key, Body: bytes.NewReader(body), ContentType: aws.String("application/json")}
	if version == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &version
	}
	_, err := b.api.PutObject(ctx, in)
	if is(err, "PreconditionFailed", "ConditionalRequestConflict") {
		return fmt.Errorf("put %s: %w: %w", key, auth.ErrChanged, err)
	}
	if err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	return nil
}

// List names a page of objects in the order of their names.
func (b *Bucket) List(ctx context.Context, prefix, after string, most int) ([]string, bool, error) {
	out, err := b.api.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket: &b.name, Prefix: &prefix, StartAfter: optional(after), MaxKeys: aws.Int32(int32(most)),
	})
	if err != nil {
		return nil, false, fmt.Errorf("list %s: %w", prefix, err)
	}
	keys := make([]string, 0, len(out.Contents))
	for _, o := range out.Contents {
		keys = append(keys, aws.ToString(o.Key))
	}
	return keys, aws.ToBool(out.IsTruncated), nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// is reports whether S3 answered with one of the codes.
func is(err error, codes ...string) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return false
	}
	for _, c := range codes {
		if api.ErrorCode() == c {
			return true
		}
	}
	return false
}
