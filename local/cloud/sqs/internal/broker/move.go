package broker

import (
	"encoding/base64"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	maxMovesKept = 10  // tasks of a queue that are remembered
	maxMoveRate  = 500 // messages a second, and what a task without a rate gets
)

// The states of a move task. CANCELLING, which AWS has too, takes no time here.
const (
	moveRunning   = "RUNNING"
	moveCompleted = "COMPLETED"
	moveCancelled = "CANCELLED"
	moveFailed    = "FAILED"
)

// Move is a task that moves messages out of a dead-letter queue.
type Move struct {
	Handle         string // only while it runs
	Status         string // RUNNING, COMPLETED, CANCELLED or FAILED
	SourceARN      string
	DestinationARN string // "": each message goes back to the queue it came from
	PerSecond      int    // 0: not limited by the caller
	Moved          int
	ToMove         int // when it started
	Failure        string
	StartedAt      time.Time
}

// move is a Move with its timer. The broker's mutex guards it.
type move struct {
	Move
	id    string
	alarm alarm
}

// moveHandle is what the handle of a task holds, as on AWS.
type moveHandle struct {
	TaskID    string `json:"taskId"`
	SourceARN string `json:"sourceArn"`
}

func noSuchResource(parameter string) error {
	return Fail(ResourceNotFound, "The resource that you specified for the %s parameter doesn't exist.", parameter)
}

// StartMove begins to move the ready messages of a dead-letter queue to another queue, or each back to where it came from if
// destinationARN is "", perSecond of them a second (0: as fast as tasks go, 500). A moved message is a new one: new id, new time
// of sending, never received. Returns the task's handle. Fails when the source is nobody's dead-letter queue, or has a task running.
func (b *Broker) StartMove(sourceARN, destinationARN string, perSecond *int) (string, error) {
	if n := perSecond; n != nil && (*n < 1 || *n > maxMoveRate) {
		return "", invalidValue("MaxNumberOfMessagesPerSecond", *n, "Must be between 1 and 500, if provided.")
	}
	if err := b.enter(); err != nil {
		return "", err
	}
	defer b.mu.Unlock()
	source := b.byARN(sourceARN)
	switch {
	case source == nil:
		return "", noSuchResource("SourceArn")
	case !b.isDeadLetterQueue(sourceARN):
		return "", Fail(InvalidParameterValue, "Source queue must be configured as a Dead Letter Queue.")
	case destinationARN == sourceARN:
		return "", Fail(InvalidParameterValue, "Source queue arn and destination queue arn cannot be the same.")
	case destinationARN != "" && b.byARN(destinationARN) == nil:
		return "", noSuchResource("DestinationArn")
	case slices.ContainsFunc(source.moves, (*move).runs):
		return "", Fail(InvalidParameterValue,
			"There is already a task running. Only one active task is allowed for a source queue arn at a given time.")
	}
	now := time.Now()
	source.refresh(now)
	mv := &move{id: newID(), Move: Move{
		Status: moveRunning, SourceARN: sourceARN, DestinationARN: destinationARN, PerSecond: orDefault(perSecond, 0),
		ToMove: source.count[ready], StartedAt: now,
	}}
	handle, err := json.Marshal(moveHandle{mv.id, sourceARN})
	if err != nil {
		return "", Fail(Unavailable, "encode the handle of a move task: %v", err)
	}
	mv.Handle = base64.StdEncoding.EncodeToString(handle)
	mv.alarm.running = &b.running
	mv.alarm.fire = func() { b.step(source, mv) }
	mv.alarm.set(mv.due())
	source.moves = append(source.moves, mv)
	if n := len(source.moves) - maxMovesKept; n > 0 {
		source.moves = slices.Delete(source.moves, 0, n)
	}
	return mv.Handle, nil
}

func (b *Broker) isDeadLetterQueue(arn string) bool {
	for _, q := range b.queues {
		if q.settings.feeds(arn) {
			return true
		}
	}
	return false
}

func (m *move) runs() bool { return m.Status == moveRunning }

// due is when the next message is to be moved. It counts from the start, so a late timer doesn't slow the task down.
func (m *move) due() time.Time {
	rate := m.PerSecond
	if rate == 0 {
		rate = maxMoveRate
	}
	return m.StartedAt.Add(time.Duration(m.Moved+1) * time.Second / time.Duration(rate))
}

// end stops a task in the state given.
func (m *move) end(status, failure string) {
	m.alarm.stop()
	m.Status, m.Failure, m.Handle = status, failure, ""
}

// step is a task's alarm: it moves one message.
func (b *Broker) step(source *queue, mv *move) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || source.isGone() || !mv.runs() {
		return
	}
	now := time.Now()
	mv.alarm.rung(now)
	source.refresh(now)
	defer source.settle()
	m := source.next()
	if m == nil || mv.Moved >= mv.ToMove {
		mv.end(moveCompleted, "")
		return
	}
	arn := mv.DestinationARN
	if arn == "" {
		arn = m.sourceARN
	}
	destination := b.byARN(arn)
	switch {
	case arn == "": // it was sent here, so it has no queue to go back to
		mv.end(moveFailed, "CouldNotDetermineMessageSource")
		return
	case destination == nil:
		mv.end(moveFailed, "AWS.SimpleQueueService.NonExistentQueue")
		return
	}
	source.forget(m)
	destination.refresh(now)
	destination.add(&message{Outgoing: m.Outgoing, id: newID(), key: b.newKey(), senderID: m.senderID, sentAt: now}, time.Time{})
	destination.settle()
	if mv.Moved++; mv.Moved >= mv.ToMove {
		mv.end(moveCompleted, "")
		return
	}
	mv.alarm.set(mv.due())
}

// Moves returns the latest tasks of a source queue, newest first, at most limit of them.
func (b *Broker) Moves(sourceARN string, limit int) ([]Move, error) {
	if limit < 1 || limit > maxMovesKept {
		return nil, invalidValue("MaxResults", limit, "Must be between 1 and 10, if provided.")
	}
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.mu.Unlock()
	source := b.byARN(sourceARN)
	if source == nil {
		return nil, noSuchResource("SourceArn")
	}
	var found []Move
	for _, mv := range slices.Backward(source.moves) {
		if len(found) == limit {
			break
		}
		found = append(found, mv.Move)
	}
	return found, nil
}

// CancelMove ends a running task and returns how many messages it has moved; those stay moved.
func (b *Broker) CancelMove(handle string) (int, error) {
	var h moveHandle
	raw, err := base64.StdEncoding.DecodeString(handle)
	if err != nil || json.Unmarshal(raw, &h) != nil {
		return 0, Fail(InvalidParameterValue, "Value for parameter TaskHandle is invalid.")
	}
	if err := b.enter(); err != nil {
		return 0, err
	}
	defer b.mu.Unlock()
	source := b.byARN(h.SourceARN)
	if source == nil {
		return 0, noSuchResource("SourceArn")
	}
	i := slices.IndexFunc(source.moves, func(mv *move) bool { return mv.id == h.TaskID })
	if i < 0 {
		return 0, Fail(ResourceNotFound, "Task does not exist.")
	}
	mv := source.moves[i]
	if !mv.runs() {
		return 0, Fail(UnsupportedOperation, "Only a task that is running can be cancelled; this one is %s.", mv.Status)
	}
	mv.end(moveCancelled, "")
	return mv.Moved, nil
}
