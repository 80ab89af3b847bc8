// Package eventsource is the loop that AWS runs between an SQS queue and a Lambda function, the event source mapping: it
// polls, makes batches, invokes, and deletes what the function has dealt with.
//
// Mappings is the service: it owns mappings, runs a Source for each, and answers Lambda's REST API for them (http.go). A
// Source is one mapping's loop.
//
// A Source has workers. Each polls, invokes with what it got, settles, and polls again, so it never holds messages that it
// can't invoke with, and the number of workers bounds the concurrent invocations. Five begin; one more is added whenever
// none is polling, up to MaximumConcurrency; those above the floor leave after an empty poll. Polls are long, so an idle
// mapping costs at most three requests a minute and worker (scale.go).
//
// What is done with a batch (reply.go, deliver.go):
//
//	function succeeded, nothing listed       deleted
//	function listed message ids              these kept, the others deleted
//	function failed, or its list is wrong    kept, all of them
//	function throttled                       tried again until the visibility timeout is near, then kept
//
// "Kept" means that nothing is done: a message comes back when its visibility timeout ends, which may be the one that the
// function has set itself. A function that fails as a whole, or is throttled, costs its mapping concurrency; one that
// lists messages does not.
//
// Not here: filters and provisioned pollers, which Mappings refuses by name, and FIFO queues.
package eventsource
