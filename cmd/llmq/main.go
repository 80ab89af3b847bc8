// Llmq is the command line of llmq. It speaks HTTP, to the admin API and to the door, and to nothing else.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Environ(), streams{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		outTerminal: term.IsTerminal(int(os.Stdout.Fd())), errTerminal: term.IsTerminal(int(os.Stderr.Fd())), inTerminal: term.IsTerminal(int(os.Stdin.Fd())),
		size: func() (columns, rows int) {
			columns, rows, err := term.GetSize(int(os.Stdout.Fd()))
			if err != nil {
				return 0, 0
			}
			return columns, rows
		},
	})
	stop()
	os.Exit(code)
}
