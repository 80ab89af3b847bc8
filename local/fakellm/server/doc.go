// Package server is fakellm: a stand-in for LLM providers that speaks their wires closely enough
// that the vendors' own clients can't tell, and that tests can program, slow down and question.
//
// It serves the OpenAI wire (chat completions and responses, also as streams, embeddings, models),
// the Bedrock wire (Converse, ConverseStream, InvokeModel, InvokeModelWithResponseStream,
// CountTokens), and its own admin API under /_admin. [Server] has the same abilities as Go
// methods, for tests in the same process. README.md one folder up shows a whole [Program].
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
// Authenticate, parse as strictly as the provider would, and then as a provider: an error of its
// door (queued, or drawn from the phase's faults), chance, the quotas of the first [Rule] that
// fits, and the model, with a queued [Reply] or the normal answer, after its latency. A call that
// is refused for its key or its form takes no reply and is not counted.
//
// A call is in flight from the moment it was let in until the last of its answer is about to be
// written, and it is logged by then. So whoever has read an answer finds that call in the log and
// no longer in flight, and peaks are exact: calls made one after the other never overlap here.
//
// # Where it is kinder than the providers
//
// Signatures are not verified. A call that its client leaves ends at once, where a provider may go
// on and charge for it. Quotas know one key or all, not the organisations that keys belong to.
// Tokens are counted by bytes, so usage is exact where providers only estimate it beforehand.
package server
