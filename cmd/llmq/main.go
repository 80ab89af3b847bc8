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
		width: func() int {
			if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
				return w
			}
			return 0
		},
	})
	stop()
	os.Exit(code)
}
