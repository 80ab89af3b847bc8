package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// RedriveRequest asks for dead letters of a model's lane to be sent again.
type RedriveRequest struct {
	Model   string     `json:"model"`
	Lane    llmq.Lane  `json:"lane"`
	Queue   queue.Name `json:"queue"`    // in place of model and lane: theirs, or its dead-letter queue
	Reason  string     `json:"reason"`   // only those with this reason; "" is all that a repeat may help, "none" those that SQS moved by itself
	MaxRate int        `json:"max_rate"` // messages a second, 1 to 500; 0 is 10
	DryRun  bool       `json:"dry_run"`  // only say what would be sent, and how long it would take
	Cursor  string     `json:"cursor"`   // of the page before, with the same model, lane and reason; "" is the first page
}

// Redriven is a page of a redrive, or a dry run of it. Counts are of the whole redrive so far.
type Redriven struct {
	Queue      queue.Name     `json:"queue"`
	DryRun     bool           `json:"dry_run,omitempty"`
	Moved      int            `json:"moved"`                  // sent again and deleted; of a dry run none
	Twice      int            `json:"twice,omitempty"`        // of them, sent but not deleted: they come up again, and their claim lets one of both run
	CameBack   int            `json:"came_back,omitempty"`    // left, for they died after the redrive began: most of them were sent by it
	Skipped    int            `json:"skipped,omitempty"`      // looked at and left, for another reason than asked for
	Hopeless   map[string]int `json:"hopeless,omitempty"`     // by reason: left, for what is sent again dies again; ask for that reason to send it all the same
	Unreadable int            `json:"unreadable,omitempty"`   // left, for they are no requests; nobody can send them again but their producer
	Unknown    int            `json:"unknown,omitempty"`      // left, for it can't be told whose they are: no sender of theirs is listed
	Failed     int            `json:"failed,omitempty"`       // left, for the queue did not take them; ask again
	Reasons    map[string]int `json:"reasons"`                // of all that were looked at
	Left       int            `json:"left"`                   // dead letters in the queue when the page began, about
	OutOfSight int            `json:"out_of_sight,omitempty"` // of those: hidden by an earlier look, and not met by this page; ask again after hidden_secs
	Done       bool           `json:"done"`
	Cursor     string         `json:"cursor,omitempty"` // of the next page, where there is one

	Matching  int  `json:"matching,omitempty"`    // of a dry run: messages that would be sent
	Estimated bool `json:"estimated,omitempty"`   // Matching is reckoned from the first thousand
	Seconds   int  `json:"seconds,omitempty"`     // of a dry run: how long that takes
	HiddenFor int  `json:"hidden_secs,omitempty"` // for so long at most the messages that were left are out of sight, for a next redrive too
}

const (
	defaultRate, mostRate = 10, 500

	// pageTime bounds a page: well inside the admin function's time and API Gateway's 29 s.
	pageTime = 18 * time.Second
	// pageMargin is what a page keeps back of its invocation, to delete what it has sent and to answer.
	pageMargin = 4 * time.Second
	// hideFor is how long a dead letter that was looked at is not handed out again: longer than a page, so that a page
	// meets it once, and short enough that those of a page that was killed are soon back.
	hideFor = 2 * time.Minute
	// firstWait lets SQS ask all of its servers before a queue counts as empty.
	firstWait = time.Second
	// dryRunMost bounds what a dry run looks at.
	dryRunMost  = 1000
	receiveMost = 10
	// noReason stands for a dead letter that no worker wrote: SQS moved it, as the last guard.
	noReason = "none"
	// mostGeneration is what an envelope may count to.
	mostGeneration = 1000
	// attrRedrive tells by which redrive a message was sent again. A worker keeps it on what it dead-letters, as
	// SQS does on what it moves.
	attrRedrive    = "llmq_redrive"
	mostAttributes = 10 // that SQS takes
	// clockMargin is how far the clocks of SQS and ours may be apart. It matters only for what has lost its
	// attributes on its way, being too large for them.
	clockMargin = 5 * time.Second
)

var reasonPattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// hopeless are the reasons that lie in the message itself: sent again as it is, it dies again.
func hopeless(reason string) bool {
	return slices.Contains([]llmq.Code{
		llmq.CodeBadEnvelope, llmq.CodeWrongQueue, llmq.CodeIdempotencyMismatch, llmq.CodeInvalidRequest, llmq.CodeInvalidJSON,
		llmq.CodeTooLarge, llmq.CodeUnsupported, llmq.CodeResultExpired, llmq.CodeSenderNotAllowed,
	}, llmq.Code(reason))
}

// Redrive sends dead letters again, each as a new message of the next generation with a fresh deadline: now and
// the lane's time-out. A page lasts some 18 s at most; the answer's cursor asks for the next.
//
// A redrive sends a message once: what has died since it began is left where it is. So is what can't but die
// again, unless its reason is asked for.
//
// No message is lost: it is sent first and deleted then. Whoever is killed between both leaves it to be sent
// again, under the same id and the same generation, so that its claim lets one of the two run.
func (o *Operator) Redrive(ctx context.Context, by string, r RedriveRequest) (out Redriven, err error) {
	defer func() {
		d := deed{by: by, verb: "redrive", args: []any{
			"model", llmq.Clip(r.Model, 80), "lane", llmq.Clip(string(r.Lane), 20), "reason", llmq.Clip(r.Reason, 64),
			"queue", llmq.Clip(string(cmp.Or(out.Queue, r.Queue)), 80), "dry_run", r.DryRun, "max_rate", r.MaxRate, "moved", out.Moved,
			"left_alone", out.leftAlone(), "done", out.Done,
		}}
		if r.DryRun { // it changes nothing
			d.log(ctx, o.deps.Trail.Log, err)
			return
		}
		err = o.deps.Trail.record(ctx, d, err)
	}()
	p, err := o.pick(r.Queue, r.Model, r.Lane)
	if err != nil {
		return Redriven{}, err
	}
	r.Model, r.Lane = p.model.Alias, p.lane
	if r.MaxRate == 0 {
		r.MaxRate = defaultRate
	}
	if err := r.check(); err != nil {
		return Redriven{}, err
	}
	c, err := r.cursor()
	if err != nil {
		return Redriven{}, err
	}
	depth, err := o.deps.Queue.Depth(ctx, p.queue.DLQ())
	if err != nil {
		return Redriven{}, err
	}
	out = c.resume(p.queue, depth)
	rd := redrive{Operator: o, place: p, ask: r, id: c.ID, began: time.UnixMilli(c.Began), out: out}
	until := time.Now().Add(pageTime)
	if d, ok := ctx.Deadline(); ok && d.Add(-pageMargin).Before(until) {
		until = d.Add(-pageMargin)
	}
	if r.DryRun {
		return rd.rehearse(ctx, until, depth)
	}
	return rd.page(ctx, until, c)
}

func (r RedriveRequest) check() error {
	if r.MaxRate < 1 || r.MaxRate > mostRate {
		return llmq.Errorf(llmq.CodeInvalidRequest, "max_rate must be from 1 to %d messages a second, is %d", mostRate, r.MaxRate).At("max_rate")
	}
	if known := reasons(); r.Reason != "" && !slices.Contains(known, r.Reason) {
		return llmq.Errorf(llmq.CodeInvalidRequest, "reason %q is unknown; use %s", llmq.Clip(r.Reason, 64), strings.Join(known, ", ")).At("reason")
	}
	if r.DryRun && r.Cursor != "" {
		return llmq.Errorf(llmq.CodeInvalidRequest, "a dry run has no pages; leave the cursor out").At("cursor")
	}
	return nil
}

// reasons are those that a redrive may ask for.
func reasons() []string {
	all := []string{noReason}
	for _, c := range llmq.Codes() {
		all = append(all, string(c.Code))
	}
	return all
}

// redrive is one page at work.
type redrive struct {
	*Operator
	place place
	ask   RedriveRequest
	id    string
	began time.Time // the first page
	out   Redriven
}

// page moves messages until the time is up or nothing is left to be looked at.
func (rd *redrive) page(ctx context.Context, until time.Time, c cursor) (Redriven, error) {
	start, sent := time.Now(), 0
	for {
		// What was sent so far has its time; so the rate holds over pages too, for each ends in this wait.
		next := start.Add(time.Duration(sent) * time.Second / time.Duration(rd.ask.MaxRate))
		late := !next.Before(until)
		if late {
			next = until
		}
		if wait := time.Until(next); wait > 0 && !sleep(ctx, wait) || late || !time.Now().Before(until) {
			break
		}
		msgs, err := rd.receive(ctx)
		if err != nil {
			return rd.interrupted(c, err)
		}
		if len(msgs) == 0 {
			rd.out.Done = true
			break
		}
		back := rd.out.CameBack
		n, err := rd.move(ctx, msgs)
		c.Seen += len(msgs) - (rd.out.CameBack - back)
		sent += n
		if err != nil {
			return rd.interrupted(c, err)
		}
		if c.Seen >= c.Most { // the ones that were left come up again
			rd.out.Done = true
			break
		}
	}
	if rd.out.CameBack > c.CameBack && rd.out.Moved == c.Moved && rd.out.Failed == c.Failed {
		rd.out.Done = true // a page that met nothing else to send
	}
	if rd.out.leftAlone() > 0 || rd.out.OutOfSight > 0 {
		rd.out.HiddenFor = int(hideFor.Seconds())
	}
	if !rd.out.Done {
		rd.out.Cursor = c.after(rd.ask, rd.out)
	}
	return rd.out, nil
}

// interrupted tells of a page that AWS ended. What it has moved is moved; the cursor takes up the rest.
func (rd *redrive) interrupted(c cursor, err error) (Redriven, error) {
	if rd.out.Moved == c.Moved { // nothing was done that would have to be told
		return Redriven{}, err
	}
	rd.deps.Trail.Log.Warn("redrive page cut short", "queue", string(rd.place.queue), "error", err)
	rd.out.Cursor = c.after(rd.ask, rd.out)
	return rd.out, nil
}

func (rd *redrive) receive(ctx context.Context) ([]queue.Message, error) {
	return rd.deps.Queue.Receive(ctx, rd.place.queue.DLQ(), queue.Fetch{Max: min(receiveMost, rd.ask.MaxRate), Hide: hideFor, Wait: firstWait})
}

// move sends what matches and deletes what was sent. It returns how many were sent, and why the queue took none.
func (rd *redrive) move(ctx context.Context, msgs []queue.Message) (int, error) {
	var again []queue.Outgoing
	var origins []queue.Message // of those, in their order
	for _, m := range msgs {
		if !rd.wants(m) {
			continue
		}
		if next, err := rd.again(m); err == nil {
			again, origins = append(again, next), append(origins, m)
		}
	}
	var receipts []string
	var failed error
	for i, err := range rd.send(ctx, again) {
		if err != nil {
			rd.out.Failed++
			failed = err
			continue
		}
		receipts = append(receipts, origins[i].Receipt)
	}
	if len(receipts) == 0 {
		return 0, failed
	}
	// They have been sent: that they are deleted must not depend on the operator's patience.
	deleting, cancel := context.WithTimeout(context.WithoutCancel(ctx), pageMargin/2)
	defer cancel()
	for _, err := range rd.deps.Queue.Delete(deleting, rd.place.queue.DLQ(), receipts) {
		rd.out.Moved++
		if err != nil {
			rd.out.Twice++
		}
	}
	return len(receipts), nil
}

// send sends messages. One that has become just too large names its body, which is put aside, and one that its hints make so
// goes without them. Result i belongs to message i.
func (rd *redrive) send(ctx context.Context, ms []queue.Outgoing) []error {
	errs := rd.deps.Queue.SendAll(ctx, rd.place.queue, ms)
	for i, m := range ms {
		if errors.Is(errs[i], llmq.CodeTooLarge) {
			if body, err := rd.small(ctx, m.Body); err != nil {
				errs[i] = err
				continue
			} else if body != nil {
				m.Body = body
				errs[i] = rd.deps.Queue.Send(ctx, rd.place.queue, m)
			}
		}
		if errors.Is(errs[i], llmq.CodeTooLarge) {
			m.Attributes = nil
			errs[i] = rd.deps.Queue.Send(ctx, rd.place.queue, m)
		}
	}
	return errs
}

// small is an envelope that names its body instead of holding it; nil where it does already, or where it is not the one under its
// id, whose body would lie in the same place.
func (rd *redrive) small(ctx context.Context, body []byte) ([]byte, error) {
	env, err := llmq.DecodeEnvelope(body)
	if err != nil || env.Ref != nil || rd.ask.Reason == string(llmq.CodeIdempotencyMismatch) {
		return nil, err
	}
	ref, err := rd.Bodies.Put(ctx, llmq.Request{ID: env.ID, Tenant: env.Tenant}.BodyKey(env.Params), env.Params)
	if err != nil {
		return nil, fmt.Errorf("put a body aside: %w", err)
	}
	env.Params, env.Ref = nil, &ref
	return env.Encode()
}

// leftAlone is how many messages were looked at and not moved.
func (r Redriven) leftAlone() int {
	n := r.CameBack + r.Skipped + r.Unreadable + r.Unknown + r.Failed
	for _, of := range r.Hopeless {
		n += of
	}
	return n
}

// reasonOf is why a message is a dead letter.
func reasonOf(m queue.Message) string {
	if reason := m.Attributes[queue.AttrReason]; reasonPattern.MatchString(reason) {
		return reason
	}
	return noReason // none, or what a stranger wrote there
}

// wants counts a message by its reason, and says whether it is to be sent; where not, it counts why.
func (rd *redrive) wants(m queue.Message) bool {
	reason := reasonOf(m)
	rd.out.Reasons[reason]++
	switch {
	case rd.ask.Reason != "" && rd.ask.Reason != reason:
		rd.out.Skipped++
	case m.Attributes[attrRedrive] == rd.id || m.SentAt.After(rd.began.Add(clockMargin)):
		rd.out.CameBack++
	case rd.ask.Reason == "" && hopeless(reason):
		if rd.out.Hopeless == nil {
			rd.out.Hopeless = map[string]int{}
		}
		rd.out.Hopeless[reason]++
	default:
		return true
	}
	return false
}

// rehearse looks at up to a thousand dead letters, lets them be seen again, and reckons.
func (rd *redrive) rehearse(ctx context.Context, until time.Time, depth queue.Depth) (Redriven, error) {
	var seen []queue.Lease
	defer func() {
		giveBack, cancel := context.WithTimeout(context.WithoutCancel(ctx), pageMargin)
		defer cancel()
		for _, err := range rd.deps.Queue.Extend(giveBack, rd.place.queue.DLQ(), seen) {
			if err != nil { // it comes back by itself
				rd.deps.Trail.Log.Debug("dead letter stays hidden for a while", "queue", string(rd.place.queue), "error", err)
			}
		}
	}()
	all := false
	for len(seen) < dryRunMost && time.Now().Before(until) {
		msgs, err := rd.deps.Queue.Receive(ctx, rd.place.queue.DLQ(), queue.Fetch{Max: receiveMost, Hide: hideFor, Wait: firstWait})
		if err != nil {
			return Redriven{}, err
		}
		if len(msgs) == 0 {
			all = true
			break
		}
		for _, m := range msgs {
			seen = append(seen, queue.Lease{Receipt: m.Receipt})
			if !rd.wants(m) {
				continue
			}
			if _, err := rd.again(m); err == nil {
				rd.out.Matching++
			}
		}
	}
	if total := depth.Visible; !all && len(seen) < total {
		rd.out.Matching = int(math.Round(float64(rd.out.Matching) * float64(total) / float64(len(seen))))
		rd.out.Estimated = true
	}
	rd.out.DryRun, rd.out.Done = true, true
	if rd.out.OutOfSight > 0 {
		rd.out.HiddenFor = int(hideFor.Seconds())
	}
	rd.out.Seconds = (rd.out.Matching + rd.ask.MaxRate - 1) / rd.ask.MaxRate
	return rd.out, nil
}
