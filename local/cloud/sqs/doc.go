// Package sqs is an Amazon SQS for one process: standard queues in memory behind an [http.Handler], exact enough that a worker
// which runs on it runs on AWS. The product reaches it as it reaches AWS, with the AWS SDK over HTTP.
//
// It speaks AWS JSON 1.0 (POST, X-Amz-Target: AmazonSQS.<Operation>), the protocol of all current SDKs, and all 23 operations but
// AddPermission and RemovePermission. Requests are read strictly: names are case-sensitive, a duplicate name or text that is not
// UTF-8 is refused. Errors name their shape (com.amazonaws.sqs#QueueDoesNotExist) and carry the old query code in the
// X-Amzn-Query-Error header, so errors.As finds the SDK's typed errors and ErrorCode returns what it returns on AWS.
//
// # Who sends
//
// Every request must be signed, or it gets MissingAuthenticationToken. The signature is not verified: a local server has no secrets
// to verify it with. The access key id of the signature's Credential is the caller's name, and what the system attribute SenderId
// tells (on AWS that is the unique id of the user or role, AIDA... or AROA...:session, likewise opaque and stable). So two functions
// that are given different fake keys can be told apart.
//
// # For tests
//
// [Server.Inject] makes it fail: messages that are lost or come twice, requests that are refused, held, cut, or carried out without an
// answer. [Server.Transport] reaches it without a socket, so that client and server fit in one testing/synctest bubble. What it holds
// is bounded ([Options]), and what is older than a queue's retention leaves memory, whether or not anybody asks.
//
// Package sqstest is the suite that holds it to AWS; docs/EMULATORS.md tells what came of it, here and on other emulators.
//
// # Where it differs from AWS, knowingly
//
//   - FIFO queues, AddPermission and RemovePermission are refused with UnsupportedOperation.
//   - Policy and the KMS attributes are kept and told, not acted upon.
//   - Changes of attributes, purges and deletions of queues take effect at once, not within 60 s. Counts are exact.
//   - A short poll looks at all messages, so it never misses one. Nothing is delivered twice but after a timeout.
//   - Among messages of several MessageGroupIds, the group with the fewest messages in flight is served first, then the oldest
//     message. AWS does so only for groups it has found to be noisy, which Options.NoisyGroups does too.
//   - ChangeMessageVisibility fails with MessageNotInflight as soon as the timeout has ended, as the API reference says. AWS has been
//     seen to accept such a call for a while.
//   - The query protocol (Action=SendMessage in a form) is not spoken.
package sqs
