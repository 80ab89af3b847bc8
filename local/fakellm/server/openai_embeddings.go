package server

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	defaultDimensions = 1536
	maxDimensions     = 3072
	maxInputs         = 2048 // OpenAI's bound of the field "input"
)

// embeddings is a request for embeddings that was understood.
type embeddings struct {
	model      string
	inputs     [][]byte // each as it is hashed: a text, or the tokens' numbers
	tokens     int
	dimensions int
	base64     bool
}

func (o openAIWire) parseEmbeddings(body []byte) (ask, *fault) {
	var in struct {
		Model          jsontext.Value `json:"model"`
		Input          jsontext.Value `json:"input"`
		Dimensions     jsontext.Value `json:"dimensions"`
		EncodingFormat jsontext.Value `json:"encoding_format"`
	}
	if f := decode(body, &in); f != nil {
		return ask{}, f
	}
	a := ask{operation: operationEmbeddings, silent: true}
	var e embeddings
	var f *fault
	e.model, f = o.parseModel(in.Model)
	a.model = e.model
	if f != nil {
		return a, f
	}
	if f := e.parseInput(in.Input); f != nil {
		return a, f
	}
	if e.dimensions, f = parseInt("dimensions", in.Dimensions); f != nil {
		return a, f
	}
	if e.dimensions == 0 {
		e.dimensions = defaultDimensions
	}
	if e.dimensions > maxDimensions {
		return a, invalid("dimensions", "integer_above_max_value",
			fmt.Sprintf("Invalid 'dimensions': integer above maximum value. Expected a value <= %d, but got %d instead.", maxDimensions, e.dimensions))
	}
	if e.base64, f = parseEncoding(in.EncodingFormat); f != nil {
		return a, f
	}
	a.input, a.render = e.tokens, e.render
	return a, nil
}

func parseEncoding(raw jsontext.Value) (asBase64 bool, f *fault) {
	if absent(raw) {
		return false, nil
	}
	var format string
	if json.Unmarshal(raw, &format) != nil {
		return false, wrongType("encoding_format", "a string", raw)
	}
	switch format {
	case "float":
		return false, nil
	case "base64":
		return true, nil
	default:
		return false, invalid("encoding_format", "invalid_value",
			fmt.Sprintf("Invalid value: '%s'. Supported values are: 'float' and 'base64'.", format))
	}
}

// parseInput reads a text, a list of texts, a list of tokens or a list of lists of tokens.
func (e *embeddings) parseInput(raw jsontext.Value) *fault {
	if absent(raw) {
		return missing("input")
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return e.addTexts(text)
	}
	var texts []string
	if json.Unmarshal(raw, &texts) == nil {
		return e.addTexts(texts...)
	}
	var one []uint32
	if json.Unmarshal(raw, &one) == nil {
		return e.addTokens(one)
	}
	var many [][]uint32
	if json.Unmarshal(raw, &many) == nil {
		return e.addTokens(many...)
	}
	return invalidInput()
}

// invalidInput is OpenAI's answer to every input that it can't embed.
func invalidInput() *fault {
	return &fault{
		status: http.StatusBadRequest, kind: kindInvalidRequest, code: noCode,
		message: "'$.input' is invalid. Please check the API reference: https://platform.openai.com/docs/api-reference.",
	}
}

func (e *embeddings) addTexts(texts ...string) *fault {
	if len(texts) == 0 || len(texts) > maxInputs {
		return invalidInput()
	}
	for _, text := range texts {
		if text == "" {
			return invalidInput()
		}
		e.inputs = append(e.inputs, append([]byte("text:"), text...))
		e.tokens += Tokens(text)
	}
	return nil
}

func (e *embeddings) addTokens(lists ...[]uint32) *fault {
	if len(lists) == 0 || len(lists) > maxInputs {
		return invalidInput()
	}
	for _, list := range lists {
		if len(list) == 0 {
			return invalidInput()
		}
		input := []byte("tokens:")
		for _, token := range list {
			input = binary.LittleEndian.AppendUint32(input, token)
		}
		e.inputs = append(e.inputs, input)
		e.tokens += len(list)
	}
	return nil
}

type embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // []float32, or a base64 string
}

func (e embeddings) render(_ completion, id string, took time.Duration) reply {
	data := make([]embedding, 0, len(e.inputs))
	for i, input := range e.inputs {
		direction := vector(e.model, input, e.dimensions)
		item := embedding{Object: "embedding", Index: i, Embedding: direction}
		if e.base64 {
			item.Embedding = encodeVector(direction)
		}
		data = append(data, item)
	}
	type usage struct {
		PromptTokens int `json:"prompt_tokens"`
		TotalTokens  int `json:"total_tokens"`
	}
	return openAIReply(http.StatusOK, id, took, struct {
		Object string      `json:"object"`
		Data   []embedding `json:"data"`
		Model  string      `json:"model"`
		Usage  usage       `json:"usage"`
	}{"list", data, e.model, usage{e.tokens, e.tokens}})
}

// vector is a direction drawn from what model and input hash to, as evenly as on a sphere.
func vector(model string, input []byte, dimensions int) []float32 {
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%d:%s:", len(model), model) // a hash never fails
	_, _ = hash.Write(input)
	sum := hash.Sum(nil)
	rng := rand.New(rand.NewPCG(binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:]))) // it must repeat
	drawn := make([]float64, dimensions)
	var square float64
	for i := range drawn {
		drawn[i] = rng.NormFloat64()
		square += drawn[i] * drawn[i]
	}
	unit := make([]float32, dimensions)
	for i := range drawn {
		unit[i] = float32(drawn[i] / math.Sqrt(square))
	}
	return unit
}

// encodeVector is what encoding_format base64 means: little-endian float32.
func encodeVector(v []float32) string {
	raw := make([]byte, 0, 4*len(v))
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(raw)
}
