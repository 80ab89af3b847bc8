package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// store reads text into the field that at points to. It returns what is wrong with
// the text, or "" when nothing is.
func (st setting) store(at any, text string) string {
	if problem := st.check(text); problem != "" {
		return problem
	}
	switch p := at.(type) {
	case *string:
		*p = text
	case *Kind:
		*p = Kind(text)
	case *ProviderType:
		*p = ProviderType(text)
	case *RateWindow:
		*p = RateWindow(text)
	case *RoutingMode:
		*p = RoutingMode(text)
	case *bool:
		*p = text == "true"
	case *Share:
		of, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return st.outOfBounds(text)
		}
		*p = Share{Of: of, Given: true}
	case *Number:
		of, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return st.outOfBounds(text)
		}
		*p = Number{Of: of, Given: true}
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil { // check has let digits through only, so it is too long
			return st.outOfBounds(text)
		}
		*p = n
	case *time.Duration:
		d, err := parseSecs(text)
		if err != nil {
			return st.outOfBounds(text)
		}
		*p = d
	case *float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return st.outOfBounds(text)
		}
		*p = n
	default:
		panic(fmt.Sprintf("config: %s has a field of type %T", st.path, at))
	}
	return ""
}

var (
	wholePattern = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	sharePattern = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]{1,3})?$`)
	secsPattern  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]{1,9})?$`)
)

// check tells what is wrong with the text of a plain setting.
func (st setting) check(text string) string {
	shown := strconv.Quote(llmq.Clip(text, 60))
	switch st.form {
	case formBool:
		if text != "true" && text != "false" {
			return "must be true or false, not " + shown
		}
	case formCount, formFullSec:
		if !wholePattern.MatchString(text) {
			return "must be a " + st.unit() + ", in plain digits, not " + shown
		}
		return st.checkBounds(text)
	case formShare:
		if !sharePattern.MatchString(text) {
			return "must be a number such as 0.8 or 1, with at most three decimals, not " + shown
		}
		return st.checkBounds(text)
	case formSecs:
		if !secsPattern.MatchString(text) {
			return "must be a number of seconds such as 2 or 0.5, without a unit, not " + shown
		}
		return st.checkBounds(text)
	case formNumber:
		if !secsPattern.MatchString(text) {
			return "must be a number such as 2 or 0.5, not " + shown
		}
		return st.checkBounds(text)
	default:
		return st.checkText(text)
	}
	return ""
}

// unit is what a whole number counts.
func (st setting) unit() string {
	if st.form == formFullSec {
		return "whole number of seconds"
	}
	return "whole number"
}

func (st setting) checkBounds(text string) string {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < st.low || n > st.high {
		return st.outOfBounds(text)
	}
	return ""
}

func (st setting) outOfBounds(text string) string {
	why := st.why
	if n, err := strconv.ParseFloat(text, 64); err == nil && n < st.low && st.whyLow != "" {
		why = st.whyLow
	}
	return fmt.Sprintf("must be %s, not %s: %s", st.bounds(), llmq.Clip(text, 40), why)
}

// bounds is what is allowed, in words; "" when anything is.
func (st setting) bounds() string {
	switch {
	case st.words != nil:
		return strings.Join(st.words, ", ")
	case st.pattern != nil:
		return shape(st.pattern)
	case st.high > 0:
		return strconv.FormatFloat(st.low, 'f', -1, 64) + " to " + strconv.FormatFloat(st.high, 'f', -1, 64)
	}
	return ""
}

// checkText holds text, or an entry's name, against the row's words and pattern.
func (st setting) checkText(text string) string {
	shown := strconv.Quote(llmq.Clip(text, 60))
	switch {
	case text == "":
		return "is empty"
	case st.words != nil && !slices.Contains(st.words, text):
		return "must be one of " + strings.Join(st.words, ", ") + ", not " + shown
	case st.pattern != nil && st.why == whyQueue && strings.Contains(text, ".fifo"):
		return "must not end so: " + whyNoFIFO
	case st.pattern != nil && !st.pattern.MatchString(text):
		problem := "must match " + shape(st.pattern) + ", not " + shown
		if st.why != "" {
			problem += ": " + st.why
		}
		return problem
	}
	return ""
}

// add appends a word to the list that at points to.
func (st setting) add(at any, word string) string {
	if problem := st.checkText(word); problem != "" {
		return problem
	}
	if slices.Contains(listed(at), word) {
		return strconv.Quote(llmq.Clip(word, 60)) + " is named twice"
	}
	switch p := at.(type) {
	case *[]string:
		*p = append(*p, word)
	case *[]llmq.Lane:
		*p = append(*p, llmq.Lane(word))
	case *[]llmq.Wire:
		*p = append(*p, llmq.Wire(word))
	case *[]llmq.Tier:
		*p = append(*p, llmq.Tier(word))
	default:
		panic(fmt.Sprintf("config: %s has a field of type %T", st.path, at))
	}
	return ""
}

// storeText is store for text from outside the file, where a list is words with commas between.
func (st setting) storeText(at any, text string) string {
	if st.form != formList {
		return st.store(at, text)
	}
	if p, ok := at.(*[]string); ok {
		*p = nil // it takes the place of the file's
	}
	for word := range strings.SplitSeq(text, ",") {
		if problem := st.add(at, strings.TrimSpace(word)); problem != "" {
			return problem
		}
	}
	return ""
}

// storeDefault is store for the table's own text.
func (st setting) storeDefault(at any, text string) {
	if problem := st.storeText(at, text); problem != "" {
		panic("config: default of " + st.path + " " + problem)
	}
}

// listed is the list that at points to.
func listed(at any) []string {
	switch p := at.(type) {
	case *[]string:
		return *p
	case *[]llmq.Lane:
		return names(*p)
	case *[]llmq.Wire:
		return names(*p)
	case *[]llmq.Tier:
		return names(*p)
	}
	return nil
}

// text is a plain field as store reads it, and whether it is the zero value.
func text(at any) (s string, zero bool) {
	switch p := at.(type) {
	case *string:
		return *p, *p == ""
	case *Kind:
		return string(*p), *p == ""
	case *ProviderType:
		return string(*p), *p == ""
	case *RateWindow:
		return string(*p), *p == ""
	case *RoutingMode:
		return string(*p), *p == ""
	case *bool:
		return strconv.FormatBool(*p), !*p
	case *Share:
		return strconv.FormatFloat(p.Of, 'f', -1, 64), !p.Given
	case *Number:
		return strconv.FormatFloat(p.Of, 'f', -1, 64), !p.Given
	case *int:
		return strconv.Itoa(*p), *p == 0
	case *time.Duration:
		return formatSecs(*p), *p == 0
	case *float64:
		return strconv.FormatFloat(*p, 'f', -1, 64), *p == 0
	}
	return "", true
}

// parseSecs reads seconds exactly; floats would lose nanoseconds.
func parseSecs(s string) (time.Duration, error) {
	return time.ParseDuration(s + "s")
}

// formatSecs writes d as parseSecs reads it.
func formatSecs(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	s := fmt.Sprintf("%s%d.%09d", sign, d/time.Second, d%time.Second)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
