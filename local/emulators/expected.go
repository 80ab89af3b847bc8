package main

import (
	"bytes"
	_ "embed" // of expected.json
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/llm-queue/llmq/local/cloud/sqs/sqstest"
)

// expectedFile is where -update writes, from the repository's root.
const expectedFile = "local/emulators/expected.json"

//go:embed expected.json
var expectedJSON []byte

// expectation is what a row's checks do on one emulator.
type expectation struct {
	// Survey is how an earlier survey, with checks of its own, marked the emulator in this row: Y works as on AWS, ~ nearly, N not.
	// Empty for rows that it did not have.
	Survey string `json:"survey,omitempty"`

	// Fails are the checks that fail, in order.
	Fails []string `json:"fails,omitempty"`

	// Varies are checks that fail on some runs only, and are not compared.
	Varies []string `json:"varies,omitempty"`

	// Why says what the emulator does instead.
	Why string `json:"why,omitempty"`
}

// expectations are those of every emulator by name and row.
type expectations map[string]map[string]expectation

func readExpected() (expectations, error) {
	var e expectations
	decoder := json.NewDecoder(bytes.NewReader(expectedJSON))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&e); err != nil {
		return nil, fmt.Errorf("%s: %w", expectedFile, err)
	}
	return e, nil
}

// compare returns every difference between what was expected and what came.
func (e expectations) compare(rows []sqstest.Row, got map[string]outcome) []string {
	var differences []string
	for _, name := range slices.Sorted(maps.Keys(got)) {
		for _, r := range rows {
			row := r.Name
			want, ran := e[name][row], got[name][row]
			failed := got[name].failed(row)
			for _, check := range failed {
				if !slices.Contains(want.Fails, check) && !slices.Contains(want.Varies, check) {
					differences = append(differences, fmt.Sprintf("%s fails %q of %q", name, check, row))
				}
			}
			for _, check := range want.Fails {
				if passed, there := ran[check]; !there {
					differences = append(differences, fmt.Sprintf("the suite has no check %q in %q, or it did not run on %s", check, row, name))
				} else if passed {
					differences = append(differences, fmt.Sprintf("%s passes %q of %q", name, check, row))
				}
			}
			if want.Survey == "N" && len(failed) == 0 {
				differences = append(differences, fmt.Sprintf("%s passes all of %q, which the survey marked N", name, row))
			}
		}
	}
	return differences
}

// record writes the outcome into expectedFile, and keeps what it says besides.
func (e expectations) record(rows []sqstest.Row, got map[string]outcome) error {
	for name, o := range got {
		if e[name] == nil {
			e[name] = map[string]expectation{}
		}
		for _, r := range rows {
			row := r.Name
			x := e[name][row]
			x.Fails = slices.DeleteFunc(o.failed(row), func(check string) bool { return slices.Contains(x.Varies, check) })
			e[name][row] = x
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(e); err != nil {
		return fmt.Errorf("%s: %w", expectedFile, err)
	}
	if err := os.WriteFile(expectedFile, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the outcome: %w", err)
	}
	return nil
}
