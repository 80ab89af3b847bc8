package admin

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"maps"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// cursor is where a redrive stands. SQS has no places in a queue, so it holds counts: of what was done, to be told, and
// of what was looked at, so that messages that are left and come up again end it some time.
type cursor struct {
	Version    int            `json:"v"`
	ID         string         `json:"id"` // of the redrive, which its messages carry
	Began      int64          `json:"t"`  // Unix ms
	Model      string         `json:"m"`
	Lane       llmq.Lane      `json:"l"`
	Reason     string         `json:"r"`
	Seen       int            `json:"s"` // receives of a message, but for those that came back
	Most       int            `json:"n"` // receives that end it
	Moved      int            `json:"mv"`
	Twice      int            `json:"tw"`
	Skipped    int            `json:"sk"`
	CameBack   int            `json:"cb"`
	Hopeless   map[string]int `json:"hl"`
	Unreadable int            `json:"un"`
	Unknown    int            `json:"uk"`
	Failed     int            `json:"fl"`
	Reasons    map[string]int `json:"rs"`
}

const (
	cursorVersion  = 2
	maxCursorBytes = 8 << 10
	redriveIDChars = 12
	// slack is added to the receives of a redrive: the depth that it begins with is approximate.
	slack = 100
)

// cursor reads the request's cursor; the first page has an empty one.
func (r RedriveRequest) cursor() (cursor, error) {
	if r.Cursor == "" {
		return cursor{}, nil
	}
	bad := func(why string) (cursor, error) {
		return cursor{}, llmq.Errorf(llmq.CodeInvalidRequest, "cursor %s; send the one of the page before, or none to begin anew", why).At("cursor")
	}
	if len(r.Cursor) > maxCursorBytes {
		return bad("is too long")
	}
	text, err := base64.RawURLEncoding.DecodeString(r.Cursor)
	if err != nil {
		return bad("is none of ours")
	}
	var c cursor
	if json.Unmarshal(text, &c) != nil || c.Version != cursorVersion || len(c.ID) != redriveIDChars || c.Began <= 0 {
		return bad("is none of ours")
	}
	if c.Model != r.Model || c.Lane != r.Lane || c.Reason != r.Reason {
		return bad("is of a redrive of another model, lane or reason")
	}
	return c, nil
}

// resume is what the redrive has done before this page. It gives a first page its id, its time and its bound.
func (c *cursor) resume(q queue.Name, d queue.Depth) Redriven {
	if c.ID == "" {
		c.ID, c.Began = rand.Text()[:redriveIDChars], time.Now().UnixMilli()
	}
	if c.Most <= 0 {
		c.Most = 2*(d.Visible+d.InFlight) + slack
	}
	reasons := maps.Clone(c.Reasons)
	if reasons == nil {
		reasons = map[string]int{}
	}
	return Redriven{
		Queue: q, Moved: c.Moved, Twice: c.Twice, CameBack: c.CameBack, Skipped: c.Skipped, Hopeless: maps.Clone(c.Hopeless),
		Unreadable: c.Unreadable, Unknown: c.Unknown, Failed: c.Failed, Reasons: reasons, Left: d.Visible + d.InFlight, OutOfSight: d.InFlight,
	}
}

// after is the cursor behind a page.
func (c cursor) after(r RedriveRequest, out Redriven) string {
	text, err := json.Marshal(cursor{
		Version: cursorVersion, ID: c.ID, Began: c.Began, Model: r.Model, Lane: r.Lane, Reason: r.Reason, Seen: c.Seen, Most: c.Most,
		Moved: out.Moved, Twice: out.Twice, CameBack: out.CameBack, Skipped: out.Skipped, Hopeless: out.Hopeless,
		Unreadable: out.Unreadable, Unknown: out.Unknown, Failed: out.Failed, Reasons: out.Reasons,
	})
	if err != nil {
		panic("admin: cursor: " + err.Error()) // numbers and strings marshal
	}
	return base64.RawURLEncoding.EncodeToString(text)
}
