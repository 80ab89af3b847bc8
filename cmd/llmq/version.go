package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build is what is known of this binary.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Changed bool   `json:"changed,omitempty"` // the sources differ from the commit
	Go      string `json:"go"`
}

// thisBuild reads what the Go command has written into the binary.
func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return build{Version: "unknown"}
	}
	b := build{Version: info.Main.Version, Go: info.GoVersion}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Changed = s.Value == "true"
		}
	}
	return b
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Which build this is", Example: "  llmq version --json", Args: noArgs,
		RunE: a.does(func(context.Context, []string) error {
			b := thisBuild()
			if !a.tables() {
				raw, err := json.Marshal(b)
				if err != nil {
					return fmt.Errorf("write the version: %w", err)
				}
				return a.printJSON(raw)
			}
			_, err := fmt.Fprintf(a.out, "llmq %s, %s\n", b.Version, b.Go)
			return err
		}),
	}
}
