// Package llmq is the vocabulary of llmq, a queue for LLM calls: what a call is,
// how it is named, how it ends. It holds no I/O and imports the standard library
// only, so that every other package can speak it.
//
// # A request's life
//
//  1. A caller sends a provider's own body over HTTPS, or an [Envelope] to a queue.
//  2. The door authenticates, reads only what routing needs, keeps the bytes.
//  3. A submission record is written under the request's [RID]; a known id re-attaches.
//  4. The envelope goes to the queue of its model and lane.
//  5. A worker receives the message and shortens its visibility to a lease.
//  6. It takes the claim and asks for a slot, in one round trip.
//  7. No slot: the message goes back with a delay; that is not an attempt.
//  8. The target's provider gets the body, bounded by the nearest deadline.
//  9. What came back is a reply or an [Error]; either is a [Result].
//  10. The result is stored under the claim's fence, the slot is returned.
//  11. Whoever waits is woken, reads the result, and answers its caller.
//  12. Only then is the message deleted.
//
// # Glossary
//
// One word per thing; these are the words.
//
//   - request: one LLM call as its caller sees it, whatever it takes to serve it.
//   - wire: the HTTP dialect of a body ([WireOpenAI], [WireConverse], [WireInvoke]); never translated.
//   - op: what is asked for on a wire (chat, embeddings, converse).
//   - model alias: the name that callers use for a model; its queues carry it.
//   - target: one place that serves a model: a provider and the provider's own model id.
//   - model reference: alias, or alias@target to pin one target ([ModelRef]).
//   - lane: rt (somebody waits), bg (soon), bulk (some time).
//   - door: the HTTPS endpoint. worker: what runs queued requests.
//   - submission record: what the door writes before it sends; it makes an id unique.
//   - claim: the right of one worker to run one request, with a fence.
//   - fence: the number of a claim's take; an older one can store nothing.
//   - lease: how long a claim, a slot or a message stays held without renewal.
//   - slot: the right to have one call in flight at a target.
//   - attempt: one request sent to a provider.
//   - result: the stored end of a request: a reply or an error, with its [Meta].
//   - outcome: what the worker does with a message: acknowledge, release, dead-letter.
//   - release: hand a message back to its queue for a while.
//   - takeover: a claim taken after its owner's lease lapsed.
//
// # Packages
//
// client sends and waits; httpapi is the door; worker turns a message into an
// outcome; engine runs one request; capacity, claims and results are the shared
// state in Valkey; queue and provider are the contracts with the outside world;
// config is the only reader of environment and files.
package llmq
