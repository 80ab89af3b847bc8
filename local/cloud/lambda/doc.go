// Package lambda runs Lambda functions on this machine: real bootstrap binaries, built as for AWS, as child processes that
// talk to a Runtime API.
//
// A Host holds functions. Each has as many instances as its invocations need at once, within the concurrency that it has
// reserved or that the account has left; an instance is one process with its own Runtime API listener on 127.0.0.1, because
// AWS_LAMBDA_RUNTIME_API carries only host:port and the port is therefore the only thing that tells one instance from
// another. An instance takes one invocation at a time.
//
// The life of an invocation:
//
//  1. Invoke or InvokeStream picks the instance that became idle last, or starts one, or fails with CodeThrottled.
//  2. The process is thawed, or started. It asks GET .../invocation/next and gets the payload, the request id and the
//     deadline. A process that fails before that is started once more, within the invocation.
//  3. It posts .../{id}/response, which is passed on chunk by chunk, or .../{id}/error.
//  4. It asks for .../next again. Only now is the invocation over: the process group is stopped, then the caller sees the
//     end of the reply, the time is billed and the instance is idle. A caller that has its reply can thus invoke again
//     without being throttled, and finds in Options.Output what the function has printed.
//
// A process that exits, is killed or runs over its timeout ends the invocation with the error AWS would give, and the next
// invocation gets a new process. Neither a caller that gives up nor one that closes its stream stops a function: AWS does
// not tell functions either. Idle instances are spun down; SIGTERM comes before SIGKILL only where the process has
// registered an extension.
//
// InvokeAsync queues an event and tries it again as AWS does. API is Lambda's HTTP API for SDKs. Kill, Hang, SlowStart,
// ThrottleNext and CrashNext make something go wrong in one line of a test; links between a function and what it dials are
// package relay's.
//
// Not obvious: a child starts with an empty environment (env.go); it is a process group of its own, stopped and killed as a
// whole, which only a child that left the group escapes; and on Linux the thread that started it stays alive as long as it
// does, because the kernel ties Pdeathsig to that thread (process.go).
package lambda
