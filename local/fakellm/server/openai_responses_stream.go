package server

import "time"

// responsesStream gathers the typed events of a stream, which are numbered.
type responsesStream struct{ events []event }

// add takes the members of the event that follow its type, as names and values in turn.
func (s *responsesStream) add(tokens int, kind string, members ...any) {
	members = append(members, "sequence_number", len(s.events))
	s.events = append(s.events, event{data: sseNamed(kind, typed(kind, members...)), tokens: tokens})
}

// renderStream has OpenAI's typed events, from response.created to response.completed (or
// response.incomplete); there is no [DONE].
func (c responses) renderStream(said completion, id string, took time.Duration) reply {
	begun := c.begin(id)
	items := said.items(id)
	var s responsesStream
	s.add(0, "response.created", "response", begun)
	s.add(0, "response.in_progress", "response", begun)
	for i, item := range items {
		if item.Type == "message" {
			s.addMessage(i, item, said)
		} else {
			s.addCall(i, item, said)
		}
	}
	s.add(0, "response."+said.status(), "response", c.end(begun, said, items))
	s.events[len(s.events)-1].end = true
	return openAIStream(id, took, s.events, breakResponsesStream)
}

func (s *responsesStream) addMessage(i int, item responseItem, said completion) {
	opened := item
	opened.Status, opened.Content = "in_progress", []responseText{}
	s.add(0, "response.output_item.added", "output_index", i, "item", opened)
	s.add(0, "response.content_part.added", "item_id", item.ID, "output_index", i, "content_index", 0, "part", newResponseText(""))
	for _, piece := range said.pieces(said.text) {
		s.add(Tokens(piece), "response.output_text.delta",
			"item_id", item.ID, "output_index", i, "content_index", 0, "delta", piece, "logprobs", []any{})
	}
	s.add(0, "response.output_text.done",
		"item_id", item.ID, "output_index", i, "content_index", 0, "text", said.text, "logprobs", []any{})
	s.add(0, "response.content_part.done", "item_id", item.ID, "output_index", i, "content_index", 0, "part", item.Content[0])
	s.add(0, "response.output_item.done", "output_index", i, "item", item)
}

func (s *responsesStream) addCall(i int, item responseItem, said completion) {
	opened, none := item, ""
	opened.Status, opened.Arguments = "in_progress", &none
	s.add(Tokens(item.Name), "response.output_item.added", "output_index", i, "item", opened)
	for _, piece := range said.pieces(*item.Arguments) {
		s.add(Tokens(piece), "response.function_call_arguments.delta", "item_id", item.ID, "output_index", i, "delta", piece)
	}
	s.add(0, "response.function_call_arguments.done", "item_id", item.ID, "output_index", i, "arguments", *item.Arguments)
	s.add(0, "response.output_item.done", "output_index", i, "item", item)
}

// breakResponsesStream is the event "error", whose members are the error's own.
func breakResponsesStream(f fault) []byte {
	e := completeOpenAI(f).shape()
	return sseNamed("error", typed("error", "code", e.Code, "message", e.Message, "param", e.Param, "sequence_number", 0))
}
