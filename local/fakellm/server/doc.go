// Package server is fakellm: a stand-in for LLM providers that speaks their wires closely enough
// that the vendors' own clients can't tell, and that tests can program, slow down and question.
//
// It serves the OpenAI wire (POST /v1/chat/completions, POST /v1/embeddings, GET /v1/models), the
// Bedrock wire (POST /model/{modelId}/converse), and its own admin API under /_admin. [Server] has
// the same abilities as Go methods, for tests in the same process.
//
// # What it answers
//
// A chat answers "[model] " and the text of the last user message, so a test can tell whose
// answer it got. An embedding is a unit vector that depends on nothing but the model, the input
// and the number of dimensions. A token is four bytes of text, the last one perhaps shorter (see
// [Tokens]); parts that are no text count as nothing.
//
// # Life of a call
//
// Authenticate, parse as strictly as the provider would, choose a reply (a programmed one, else
// the normal one), wait (latency, or hang until released), answer. A call that is refused for its
// key or its form takes no programmed reply and is not counted as in flight.
//
// A call is in flight from the moment it was parsed until its answer is about to be written, and
// it is logged by then. So whoever has read an answer finds that call in the log and no longer in
// flight, and peaks are exact: calls made one after the other never overlap here.
package server
