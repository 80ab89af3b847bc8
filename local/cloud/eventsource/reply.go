package eventsource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// kept returns the ids of the messages that a function's reply says are not done. An error means that the reply is of the
// kind that AWS takes as failure of the whole batch.
//
// Keys are compared exactly, which is why encoding/json's struct decoding, blind to case, is of no use here: on AWS
// "BatchItemFailures" is an unknown key, so everything is deleted.
func kept(reply []byte, batch []message) (map[string]bool, error) {
	reply = bytes.TrimSpace(reply)
	if len(reply) == 0 || string(reply) == "null" {
		return nil, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(reply, &fields); err != nil {
		return nil, errors.New("reply is not a JSON object") // the decoder's error would quote the reply
	}
	list, ok := fields["batchItemFailures"]
	if !ok {
		return nil, nil
	}
	var items []map[string]json.RawMessage
	if err := json.Unmarshal(list, &items); err != nil {
		return nil, errors.New("batchItemFailures is not a list of objects")
	}
	known := make(map[string]bool, len(batch))
	for _, m := range batch {
		known[m.id] = true
	}
	ids := make(map[string]bool, len(items))
	for n, item := range items {
		var id *string
		if raw, ok := item["itemIdentifier"]; !ok || json.Unmarshal(raw, &id) != nil || id == nil || *id == "" {
			return nil, fmt.Errorf("batchItemFailures[%d] has no itemIdentifier", n)
		}
		if !known[*id] {
			return nil, fmt.Errorf("batchItemFailures[%d] names no message of the batch", n)
		}
		ids[*id] = true
	}
	return ids, nil
}
