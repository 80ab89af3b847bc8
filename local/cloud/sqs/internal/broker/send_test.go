package broker

import (
	"strings"
	"testing"
)

func TestSend_RefusesWhatSQSDoesNotCarry(t *testing.T) {
	t.Parallel()
	b := plain(t)
	attribute := func(name, kind, text string) Outgoing {
		return Outgoing{Body: "x", Attributes: map[string]Attribute{name: {Type: kind, Text: text}}}
	}
	for name, c := range map[string]struct {
		message Outgoing
		want    Code
	}{
		"empty body":             {Outgoing{}, MissingParameter},
		"control character":      {Outgoing{Body: "a\x0bb"}, InvalidMessageContents},
		"not UTF-8":              {Outgoing{Body: "a\xff"}, InvalidMessageContents},
		"U+FFFE":                 {Outgoing{Body: "\ufffe"}, InvalidMessageContents},
		"too large":              {Outgoing{Body: strings.Repeat("x", MaxMessageBytes+1)}, InvalidParameterValue},
		"delay":                  {Outgoing{Body: "x", DelaySeconds: new(901)}, InvalidParameterValue},
		"negative delay":         {Outgoing{Body: "x", DelaySeconds: new(-1)}, InvalidParameterValue},
		"group with space":       {Outgoing{Body: "x", GroupID: "a b"}, InvalidParameterValue},
		"long group":             {Outgoing{Body: "x", GroupID: strings.Repeat("g", 129)}, InvalidParameterValue},
		"no name":                {attribute("", "String", "x"), InvalidParameterValue},
		"reserved name":          {attribute("aWs.x", "String", "x"), InvalidParameterValue},
		"other reserved name":    {attribute("Amazon.x", "String", "x"), InvalidParameterValue},
		"name with space":        {attribute("a b", "String", "x"), InvalidParameterValue},
		"name ends in a dot":     {attribute("a.", "String", "x"), InvalidParameterValue},
		"long name":              {attribute(strings.Repeat("a", 257), "String", "x"), InvalidParameterValue},
		"no type":                {attribute("a", "", "x"), InvalidParameterValue},
		"unknown type":           {attribute("a", "string", "x"), InvalidParameterValue},
		"long type":              {attribute("a", "String."+strings.Repeat("x", 250), "x"), InvalidParameterValue},
		"odd type":               {attribute("a", "String.\x01", "x"), InvalidParameterValue},
		"no value":               {attribute("a", "String", ""), InvalidParameterValue},
		"text as binary":         {attribute("a", "Binary", "x"), InvalidParameterValue},
		"control in a value":     {attribute("a", "String", "\x07"), InvalidParameterValue},
		"no number":              {attribute("a", "Number", "12a"), InvalidParameterValue},
		"number without digits":  {attribute("a", "Number", "-"), InvalidParameterValue},
		"39 digits":              {attribute("a", "Number", strings.Repeat("9", 39)), InvalidParameterValue},
		"number out of exponent": {attribute("a", "Number", "1e127"), InvalidParameterValue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := b.Send(queueName, "", c.message)
			wantCode(t, err, c.want)
		})
	}
}

func TestSend_TakesNumbersOfAllForms(t *testing.T) {
	t.Parallel()
	for _, number := range []string{"0", "-1", "+1", "1.5", ".5", "5.", "1e10", "-1.5E-128", strings.Repeat("9", 38)} {
		if !isNumber(number) {
			t.Errorf("%s is refused", number)
		}
	}
}
