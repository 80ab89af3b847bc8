package rig

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/llm-queue/llmq/local/cloud/relay"
	"github.com/llm-queue/llmq/local/fakellm/server"
)

// startFake serves the fake provider until the rig closes, and returns the URL by which
// the workers reach it.
func (r *Rig) startFake(o Options, key string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed by Close
	if err != nil {
		return "", err
	}
	address := l.Addr().String()
	if o.Linked {
		if address, err = r.link(PartProvider, address); err != nil {
			_ = l.Close() // nothing was served on it
			return "", err
		}
	}
	if r.Fake, err = server.New(server.Options{APIKeys: []string{key}, Hosts: []string{address}, Logger: o.Logger}); err != nil {
		_ = l.Close() // nothing was served on it
		return "", err
	}
	srv := &http.Server{Handler: r.Fake, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // it ends when Close says so
	}()
	r.closers = append(r.closers, func(ctx context.Context) error {
		r.Fake.Close()
		if err := srv.Shutdown(ctx); err != nil {
			_ = srv.Close() // Shutdown's error says it all
		}
		<-done
		return nil
	})
	return "http://" + address, nil
}

// link puts a link before a part until the rig closes.
func (r *Rig) link(part, address string) (string, error) {
	l, err := relay.New(context.Background(), address)
	if err != nil {
		return "", fmt.Errorf("link to %s: %w", part, err)
	}
	r.Links[part] = l
	r.closers = append(r.closers, func(context.Context) error { l.Close(); return nil })
	return l.Addr(), nil
}
