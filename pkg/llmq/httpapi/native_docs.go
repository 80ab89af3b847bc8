package httpapi

import (
	"net/http"
	"strings"

	"github.com/llm-queue/llmq/docs"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
)

// document serves what describes this API, and a queue's messages, to machines.
func (h *Handler) document(x *exchange, c auth.Caller) error {
	if err := c.May(x.matched.access.scope()); err != nil {
		return err
	}
	contentType, text := "application/json", docs.OpenAPI()
	if strings.HasSuffix(x.matched.Path, ".schema.json") {
		contentType, text = "application/schema+json", docs.MessageSchema()
	}
	x.answer(http.StatusOK, contentType, []byte(text))
	return nil
}
