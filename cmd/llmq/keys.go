package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
)

func (a *app) keys() *cobra.Command {
	list := a.does(func(ctx context.Context, _ []string) error { return a.listKeys(ctx) })
	c := &cobra.Command{
		Use:     "keys",
		Short:   "List callers' keys; create, rotate and revoke them",
		Long:    "List callers' keys: whose they are, what they may do, until when. A key's secret is shown once, when it is made.",
		Example: "  llmq keys\n  llmq keys create --tenant acme --models chat-a --lanes rt,bg",
		Args:    noArgs,
		RunE:    list,
	}
	c.AddCommand(
		&cobra.Command{Use: "list", Short: "List keys (what keys alone does)", Example: "  llmq keys list --json", Args: noArgs, RunE: list},
		a.showKey(), a.createKey(), a.rotateKey(), a.revokeKey(),
	)
	return c
}

// keyPage is a page of keys as it came.
type keyPage struct {
	Keys []json.RawMessage `json:"keys"`
	Next string            `json:"next,omitempty"`
}

// listKeys shows all pages as one.
func (a *app) listKeys(ctx context.Context) error {
	api, err := a.admin(ctx)
	if err != nil {
		return err
	}
	all := keyPage{Keys: []json.RawMessage{}}
	for after := ""; ; {
		query := url.Values{}
		if after != "" {
			query.Set("after", after)
		}
		raw, err := api.Get(ctx, "/keys", query)
		if err != nil {
			return err
		}
		var page keyPage
		if err := json.Unmarshal(raw, &page); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		all.Keys = append(all.Keys, page.Keys...)
		if page.Next == "" || page.Next == after {
			break
		}
		after = page.Next
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("write the keys: %w", err)
	}
	return answer(a, raw, func(l admin.KeyList) []table.Table { return []table.Table{keysTable(l.Keys...)} })
}

func (a *app) showKey() *cobra.Command {
	return &cobra.Command{
		Use: "show KID", Short: "Show a key", Long: "Show a key: all but its secret.", Example: "  llmq keys show k4qfzr9mym",
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			if strings.HasPrefix(args[0], "llmq_") { // a whole key, which must not stand in a path that others log
				return auth.CheckKID(args[0])
			}
			api, err := a.admin(ctx)
			if err != nil {
				return err
			}
			raw, err := api.Get(ctx, "/keys/"+url.PathEscape(args[0]), nil)
			if err != nil {
				return err
			}
			return answer(a, raw, func(k admin.KeyView) []table.Table { return []table.Table{keyTable(k)} })
		}),
		ValidArgsFunction: a.completeKeys,
	}
}

func (a *app) createKey() *cobra.Command {
	var ask admin.CreateKeyRequest
	var scopes, models, lanes []string
	var quiet bool
	c := &cobra.Command{
		Use:   "create",
		Short: "Make a key",
		Long: `Make a key for a tenant. It may do what is listed and nothing else, and can't be changed later. Its secret is shown this once;
with --quiet it is all that is written to stdout.`,
		Example: "  llmq keys create --tenant acme --models chat-a --lanes bg --calls-per-minute 60\n" +
			"  OPENAI_API_KEY=$(llmq keys create --tenant acme --models chat-a --quiet)",
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			for _, s := range scopes {
				ask.Scopes = append(ask.Scopes, auth.Scope(s))
			}
			for _, l := range lanes {
				ask.Lanes = append(ask.Lanes, llmq.Lane(l))
			}
			ask.Models = models
			return a.makeKey(ctx, "/keys/create", ask, quiet)
		}),
	}
	f := c.Flags()
	f.StringVar(&ask.Tenant, "tenant", "", "whose requests it makes")
	f.StringVar(&ask.Name, "name", "", "what it is for, for people")
	f.StringSliceVar(&scopes, "scopes", []string{string(auth.ScopeCall)}, "what it may do")
	f.StringSliceVar(&models, "models", nil, "the models it may use: alias, or alias@target")
	f.StringSliceVar(&lanes, "lanes", []string{string(llmq.LaneRT)}, "the lanes it may use: rt, bg, bulk")
	f.IntVar(&ask.CallsPerMinute, "calls-per-minute", 0, "calls in any 60 s; 0 is no bound")
	f.IntVar(&ask.MaxChoices, "max-choices", 0, "choices that one call may ask for, 1 to 128; 0 is 8")
	f.IntVar(&ask.ExpiresInDays, "expires-in-days", 0, "1 to 365; 0 is 90")
	f.BoolVarP(&quiet, "quiet", "q", false, "write the secret to stdout and nothing else")
	for _, name := range []string{"tenant", "models"} {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is above
		}
	}
	return c
}

func (a *app) rotateKey() *cobra.Command {
	var days, overlap int
	var quiet bool
	c := &cobra.Command{
		Use:   "rotate KID",
		Short: "Give a key a new secret",
		Long: `Give a key a new secret, which is shown this once. The old one holds on for the overlap, so that its holders can change over;
--overlap-hours 0 ends it at once.`,
		Example: "  llmq keys rotate k4qfzr9mym --overlap-hours 48",
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.makeKey(ctx, "/keys/rotate", admin.RotateKeyRequest{KID: args[0], OverlapHours: &overlap, ExpiresInDays: days}, quiet)
		}),
		ValidArgsFunction: a.completeKeys,
	}
	c.Flags().IntVar(&overlap, "overlap-hours", int(auth.DefaultOverlap.Hours()), "how long the old secret holds on, 0 to 168")
	c.Flags().IntVar(&days, "expires-in-days", 0, "of the new secret, 1 to 365; 0 is 90")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "write the secret to stdout and nothing else")
	return c
}

// makeKey has a secret made, and shows it once.
func (a *app) makeKey(ctx context.Context, path string, ask any, quiet bool) error {
	api, err := a.admin(ctx)
	if err != nil {
		return err
	}
	raw, err := api.Post(ctx, path, ask)
	if err != nil {
		return err
	}
	if !quiet {
		return answer(a, raw, func(n admin.NewKey) []table.Table {
			a.say("%s:", n.Note)
			fmt.Fprintf(a.out, "%s\n\n", n.Key)
			return []table.Table{keyTable(n.View)}
		})
	}
	var made admin.NewKey
	if err := json.Unmarshal(raw, &made); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	_, err = fmt.Fprintln(a.out, made.Key)
	return err
}

func (a *app) revokeKey() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke KID",
		Short:   "End a key",
		Long:    "End a key for good. Doors and workers know within 30 s; what it left in queues ends without an attempt.",
		Example: "  llmq keys revoke k4qfzr9mym",
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			api, err := a.admin(ctx)
			if err != nil {
				return err
			}
			raw, err := api.Post(ctx, "/keys/revoke", admin.KeyRequest{KID: args[0]})
			if err != nil {
				return err
			}
			return answer(a, raw, func(k admin.KeyView) []table.Table {
				a.say("it is refused everywhere within 30 s")
				return []table.Table{keyTable(k)}
			})
		}),
		ValidArgsFunction: a.completeKeys,
	}
}

func keysTable(keys ...admin.KeyView) table.Table {
	t := table.Table{Columns: []table.Column{
		{Head: "KID"},
		{Head: "TENANT"},
		{Head: "NAME", Drop: 2},
		{Head: "STATE"},
		{Head: "SCOPES", Drop: 3},
		{Head: "MODELS"},
		{Head: "LANES"},
		{Head: "CALLS/MIN", Right: true, Drop: 1},
		{Head: "EXPIRES"},
	}}
	for _, k := range keys {
		rate := ""
		if k.CallsPerMinute > 0 {
			rate = fmt.Sprint(k.CallsPerMinute)
		}
		t.Rows = append(t.Rows, []table.Cell{
			table.Text(k.KID), table.Text(k.Tenant), table.Text(k.Name), keyState(k.State), table.Text(list(k.Scopes)), table.Text(list(k.Models)),
			table.Text(list(k.Lanes)), table.Text(rate), table.Text(k.ExpiresAt.UTC().Format(time.DateOnly)),
		})
	}
	return t
}

func keyState(s admin.KeyState) table.Cell {
	style := table.Good
	switch s {
	case admin.KeyActive:
	case admin.KeyExpired:
		style = table.Faint
	case admin.KeyRevoked:
		style = table.Bad
	}
	return table.Cell{Text: string(s), Style: style}
}

// keyTable is one key, a line for each thing.
func keyTable(k admin.KeyView) table.Table {
	t := table.Table{Columns: []table.Column{{Head: "KEY"}, {Head: k.KID}}}
	row := func(name, value string) {
		if value != "" {
			t.Rows = append(t.Rows, []table.Cell{{Text: name, Style: table.Faint}, table.Text(value)})
		}
	}
	at := func(when time.Time) string { return when.UTC().Format(time.DateTime) }
	t.Rows = append(t.Rows, []table.Cell{{Text: "state", Style: table.Faint}, keyState(k.State)})
	row("tenant", k.Tenant)
	row("name", k.Name)
	row("scopes", list(k.Scopes))
	row("models", list(k.Models))
	row("lanes", list(k.Lanes))
	if k.CallsPerMinute > 0 {
		row("calls/min", fmt.Sprint(k.CallsPerMinute))
	}
	row("created", at(k.CreatedAt)+" by "+k.CreatedBy)
	row("expires", at(k.ExpiresAt))
	if k.RevokedAt != nil {
		row("revoked", at(*k.RevokedAt)+" by "+k.RevokedBy)
	}
	for i, s := range k.Secrets {
		if i > 0 {
			row("old secret", "until "+at(s.ExpiresAt))
		}
	}
	return t
}

func list[T ~string](of []T) string {
	texts := make([]string, len(of))
	for i, v := range of {
		texts[i] = string(v)
	}
	return strings.Join(texts, ",")
}

// completeKeys names the keys to a shell.
func (a *app) completeKeys(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var page admin.KeyList
	if len(args) > 0 || !a.look(cmd.Context(), "/keys", &page) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var kids []string
	for _, k := range page.Keys {
		kids = append(kids, k.KID+"\t"+k.Tenant+" "+k.Name)
	}
	return kids, cobra.ShellCompDirectiveNoFileComp
}

// look reads something for a completion, which has no place for an error.
func (a *app) look(ctx context.Context, path string, into any) bool {
	ctx, cancel := context.WithTimeout(ctx, completeWithin)
	defer cancel()
	api, err := a.admin(ctx)
	if err != nil {
		return false
	}
	raw, err := api.Get(ctx, path, nil)
	return err == nil && json.Unmarshal(raw, into) == nil
}
