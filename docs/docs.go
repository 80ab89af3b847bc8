// Package docs holds the documents that machines read, so that what is published here and what the door serves are one.
package docs

import _ "embed" // for the documents

//go:embed openapi.json
var openAPI string

//go:embed envelope.schema.json
var messageSchema string

// OpenAPI is the door's API, in OpenAPI 3.1.
func OpenAPI() string { return openAPI }

// MessageSchema is the JSON Schema of a message on a queue.
func MessageSchema() string { return messageSchema }
