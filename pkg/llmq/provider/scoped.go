package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Scoped is what stands for a tenant's value where a provider keeps all tenants' together, as in a cache of prompts: the same for
// the same value of the same tenant, and for no other's. It has 32 characters.
func Scoped(tenant, value string) string {
	sum := sha256.Sum256([]byte("scoped1" + tenant + "\x00" + value))
	return hex.EncodeToString(sum[:16])
}

// OutOfReach is what an adapter answers to a body that it must not send. No target would take it.
func OutOfReach(err error) *Error {
	e := &Error{Class: CallFatal, Code: llmq.CodeInvalidRequest, Unsent: true, Err: err}
	if said, ok := errors.AsType[*llmq.Error](err); ok {
		e.Code, e.Message = said.Code, said.Message
	}
	return e
}
