package claims

import (
	"strconv"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// Standing is where a request stands, as its record and its claim tell. All times are on the store's clock.
type Standing struct {
	Known     bool      // it was submitted or taken
	Created   time.Time // when it was submitted; zero: it has no record
	Deadline  time.Time // of its record; zero likewise
	Done      bool
	Cancelled bool
	Dead      bool      // done, and a message of it lies in the dead-letter queue
	LeaseEnds time.Time // of who has it; zero: nobody has
	Next      time.Time // of a deferral: it can't be taken before
	Attempts  int
	Begun     bool  // as [Store.Begun]: its provider may have been called
	Streamed  int64 // bytes of its reply that have been passed on while it came; 0 where none were
}

// Standing looks a tenant's request up. It changes nothing.
func (s *Store) Standing(b *luascript.Batch, tenant, id string) luascript.Pending[Standing] {
	k := s.keys.Call(tenant, llmq.NewRID(tenant, id))
	record, claim := b.Command("HGETALL", k.Submission), b.Command("HGETALL", k.Claim)
	return func() (Standing, error) {
		sub, err := record.Map()
		if err != nil {
			return Standing{}, err
		}
		c, err := claim.Map()
		if err != nil {
			return Standing{}, err
		}
		st := Standing{
			Known: len(sub)+len(c) > 0, Created: moment(sub["created_ms"]), Deadline: moment(sub["deadline_ms"]),
			Done: c["state"] == "done", Cancelled: c["cancelled"] == "1",
			Attempts: int(number(c["attempts"])), Streamed: number(c["streamed"]),
		}
		st.Begun = c["state"] == "running" || st.Attempts > 0 || number(c["takeovers"]) > 0
		switch c["state"] {
		case "done":
			st.Dead = c["dead"] == "1"
		case "running":
			st.LeaseEnds = moment(c["until_ms"])
		case "deferred":
			st.Next = moment(c["next_ms"])
		}
		return st, nil
	}
}

// number reads a field; one that is missing, or that this release can't read, is 0.
func number(field string) int64 {
	n, _ := strconv.ParseInt(field, 10, 64)
	return n
}

func moment(field string) time.Time {
	ms := number(field)
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
