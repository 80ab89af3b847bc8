// Package broker is the queue itself: an in-memory Amazon SQS for standard queues, with no HTTP and no JSON of the API.
//
// A message is always in exactly one place of its queue:
//
//	delayed ──delay ends──▶ ready ──Receive──▶ in flight ──Delete──▶ gone
//	                          ▲                    │
//	                          └─ timeout ends, ────┘      ready ──received too often──▶ the dead-letter queue
//	                             ChangeVisibility(0)
//
// Delayed and in-flight messages share one heap ordered by the moment they become visible, all messages another ordered by age, and
// each queue has one timer set to what is due first: nothing ticks, so a poll wakes in the instant a message becomes visible, what is
// too old leaves memory whether or not anybody asks, and tests can own time with testing/synctest.
//
// Numbers that decide behaviour, all as on AWS: 120,000 messages in flight, 1 MiB a message and a batch, 12 h of invisibility in
// all since a receive, 60 s between purges and before a deleted name may be used again.
//
// # Locking
//
// One mutex guards the whole broker, since a receive may move a message to another queue and a move task joins two queues; a lock
// per queue would need an order between them. It is held for microseconds and never across a wait, a call-out or I/O.
package broker
