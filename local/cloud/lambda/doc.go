// Package lambda runs Lambda functions on this machine: real bootstrap binaries, built as for AWS, as child processes that
// talk to a Runtime API.
//
// A Host holds functions. Each function has at most FunctionConfig.Concurrency instances; an instance is one process with
// its own Runtime API listener on 127.0.0.1, because AWS_LAMBDA_RUNTIME_API carries only host:port and the port is
// therefore the only thing that tells one instance from another. An instance takes one invocation at a time.
//
// The life of an invocation:
//
//  1. Invoke or InvokeStream picks the instance that became idle last, or starts one, or fails with CodeThrottled.
//  2. The process asks GET .../invocation/next and gets the payload, the request id and the deadline.
//  3. It posts .../{id}/response, which is passed on chunk by chunk, or .../{id}/error.
//  4. It asks for .../next again. Only now is the invocation over: the caller sees the end of the reply, the time is
//     billed and the instance is idle. A caller that has its reply can thus invoke again without being throttled.
//
// A process that exits, is killed or runs over its timeout ends the invocation with the error AWS would give, and the next
// invocation gets a new process. Neither a caller that gives up nor one that closes its stream stops a function: AWS does
// not tell functions either.
//
// Not obvious: a child starts with an empty environment (env.go); it is a process group of its own, killed as a whole; and
// on Linux the thread that started it stays alive as long as it does, because the kernel ties Pdeathsig to that thread
// (process.go).
package lambda
