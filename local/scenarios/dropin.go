package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llm-queue/llmq/local/clients/suite"
)

// clientsIn is where packages of npm and PyPI are installed, as for make test-clients.
const clientsIn = ".build/clients"

func s04(ctx context.Context, t *trial) error {
	dir, err := filepath.Abs(clientsIn)
	if err != nil {
		return err
	}
	// Before anything is started: what is missing fails it, and is named.
	node, err := suite.Node(ctx, dir)
	if err != nil {
		return fmt.Errorf("install what it needs: %w", err)
	}
	scripts := []suite.Script{{Dir: node, Args: []string{"node", "checks.mjs"}}}
	if t.Full {
		switch in, interpreter, err := suite.Python(ctx, dir); {
		case errors.Is(err, suite.ErrMissing): // it may be missing, as the definition says
			t.Note("python", err.Error())
		case err != nil:
			return err
		default:
			scripts = append(scripts, suite.Script{Dir: in, Args: []string{interpreter, "checks.py"}})
		}
	}
	w, err := t.Start(ctx, 0, nil)
	if err != nil {
		return err
	}
	provider, err := suite.NewControl(w.Fake)
	if err != nil {
		return err
	}
	t.onClose(provider.Close)
	var clients []string
	made := 0
	for _, s := range scripts {
		s.Env = []string{"CHECKS=S04"}
		if err := provider.Run(ctx, w.Rig, s, func(r suite.Result) {
			t.Hold(r.OK, "%s, %s: %.500s", r.Client, r.Check, r.Note)
			made++
			if !slices.Contains(clients, r.Client) {
				clients = append(clients, r.Client)
			}
		}, t.progress); err != nil {
			return fmt.Errorf("%s: %w", s.Args[len(s.Args)-1], err)
		}
	}
	t.Note("clients", strings.Join(clients, ", "))
	t.Note("checks", made)
	return nil
}
