package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// The groups of commands in the help.
const (
	groupSee  = "see"
	groupTurn = "turn"
	groupCall = "call"
)

// root is the tree of commands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "llmq",
		Short: "Operate llmq, a queue for LLM calls, and call through it",
		Long: `Operate llmq, a queue for LLM calls, and call through it.

llmq finds a local cloud (make run) by itself. Elsewhere it goes by --admin-url and --url, or --env, or
LLMQ_ADMIN_URL and OPENAI_BASE_URL. Requests are signed with your AWS identity, or carry the key in
LLMQ_ADMIN_KEY or OPENAI_API_KEY.

On a terminal it shows tables; a program that reads its output gets the API's JSON. Notes and errors go to stderr.

Exit codes: 0 done; 1 refused or failed; 2 asked wrongly, nothing was sent; 3 nothing found or reached;
4 not allowed; 130 interrupted.`,
		Example:       "  llmq status\n  llmq call 'hello, queue' --model chat-a",
		SilenceErrors: true, SilenceUsage: true,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.adminURL, "admin-url", "", "the admin API (LLMQ_ADMIN_URL)")
	flags.StringVar(&a.doorURL, "url", "", "the door (OPENAI_BASE_URL)")
	flags.StringVar(&a.envName, "env", "", "local, or a deployed environment: its stack llmq-ENV says where it is")
	flags.BoolVar(&a.asJSON, "json", false, "write JSON also to a terminal")
	root.MarkFlagsMutuallyExclusive("admin-url", "env")
	root.MarkFlagsMutuallyExclusive("url", "env")
	root.AddGroup(
		&cobra.Group{ID: groupSee, Title: "See:"},
		&cobra.Group{ID: groupTurn, Title: "Operate:"},
		&cobra.Group{ID: groupCall, Title: "Call:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupSee, a.status(), a.doctor(), a.metrics(), a.cost())
	add(groupTurn, a.queues(), a.keys(), a.settings(), a.routing(), a.fallback(), a.limiter(), a.breaker())
	add(groupCall, a.call(), a.request(), a.job())
	root.AddCommand(a.version())
	return root
}

// noArgs refuses an argument: it is a misspelt command most of the time.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasSubCommands() {
		return usagef("%s takes no argument, got %q", cmd.CommandPath(), args[0])
	}
	text := fmt.Sprintf("there is no command %q", cmd.CommandPath()+" "+args[0])
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageError{text}
}
