package main

import (
	"errors"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// These faults have no types in the library, so its words are read; those that are not recognised are told as they are.
var (
	flagsMissing  = regexp.MustCompile(`^required flag\(s\) "(.+)" not set$`)
	flagsOneOf    = regexp.MustCompile(`^at least one of the flags in the group \[(.+)\] is required$`)
	flagsTogether = regexp.MustCompile(`^if any flags in the group \[(.+)\] are set none of the others can be`)
	argsCount     = regexp.MustCompile(`^accepts (?:at most )?\d+ arg\(s\), received (\d+)$`)
)

// plain says in our words what is wrong with a command line, with the nearest right one.
func plain(err error, c *cobra.Command) error {
	if c == nil {
		return err
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(unknown.GetSpecifiedName(), c)
	}
	if bare, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return usagef("--%s needs a value: %s", bare.GetFlag().Name, bare.GetFlag().Usage)
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usagef("--%s can't be %q: %s", bad.GetFlag().Name, bad.GetValue(), bad.GetFlag().Usage)
	}
	for _, known := range []struct {
		words *regexp.Regexp
		say   func(part string) error
	}{
		{flagsMissing, func(names string) error {
			return usagef("%s needs --%s", verb(c), strings.ReplaceAll(names, `", "`, " and --"))
		}},
		{flagsOneOf, func(names string) error {
			return usagef("%s needs one of --%s", verb(c), strings.ReplaceAll(names, " ", ", --"))
		}},
		{flagsTogether, func(names string) error {
			return usagef("give only one of --%s", strings.ReplaceAll(names, " ", ", --"))
		}},
		{argsCount, func(got string) error {
			return usagef("%s is used as %q, and was given %s arguments", verb(c), c.Parent().CommandPath()+" "+c.Use, got)
		}},
	} {
		if m := known.words.FindStringSubmatch(err.Error()); m != nil {
			return known.say(m[1])
		}
	}
	return err
}

// verb is a command without the program's name, which stands before every error.
func verb(c *cobra.Command) string { return strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ") }

// unknownFlag names the nearest flag that the command has, or all of its own.
func unknownFlag(name string, c *cobra.Command) error {
	var names []string
	list := func(f *pflag.Flag) {
		if f.Name != "help" {
			names = append(names, f.Name)
		}
	}
	c.LocalNonPersistentFlags().VisitAll(list)
	own := strings.Join(names, ", --")
	c.InheritedFlags().VisitAll(list)
	near := llmq.Nearest(name, names)
	switch {
	case near != "":
		return usagef("%s has no flag --%s; did you mean --%s?", verb(c), name, near)
	case own != "":
		return usagef("%s has no flag %q; its own are --%s", verb(c), name, own)
	}
	return usagef("%s has no flag %q", verb(c), name)
}
