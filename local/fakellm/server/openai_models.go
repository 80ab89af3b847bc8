package server

import (
	"net/http"
	"net/url"
	"slices"
	"time"
)

type openAIModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// newModel was made when time began, as all of them were.
func newModel(id string) openAIModel {
	return openAIModel{ID: id, Object: "model", Created: 1_700_000_000, OwnedBy: "fakellm"}
}

func (o openAIWire) parseModels([]byte) (ask, *fault) {
	list := make([]openAIModel, 0, len(o.models))
	for _, id := range o.models {
		list = append(list, newModel(id))
	}
	return ask{operation: operationModels, instant: true, render: func(_ completion, id string, took time.Duration) reply {
		return openAIReply(http.StatusOK, id, took, struct {
			Object string        `json:"object"`
			Data   []openAIModel `json:"data"`
		}{"list", list})
	}}, nil
}

func (o openAIWire) parseOneModel(escaped string) (ask, *fault) {
	model, err := url.PathUnescape(escaped)
	a := ask{operation: operationModels, instant: true, model: model}
	if err != nil || len(o.models) > 0 && !slices.Contains(o.models, model) {
		return a, &fault{code: "model_not_found", model: model}
	}
	a.render = func(_ completion, id string, took time.Duration) reply {
		return openAIReply(http.StatusOK, id, took, newModel(model))
	}
	return a, nil
}
