package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// doors are the addresses that are listened on.
type doors struct{ http, https, admin string }

const defaultPort = 8080

// addresses reads LLMQ_LOCAL_PORT: http is on it, https on the next port, the
// admin API on the one after.
func addresses(env []string) (doors, error) {
	port := defaultPort
	if text := lookup(env, "LLMQ_LOCAL_PORT"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 65533 {
			return doors{}, fmt.Errorf("LLMQ_LOCAL_PORT is %q; it must be a port from 1 to 65533, for it and the next two are used", text)
		}
		port = n
	}
	at := func(p int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p)) }
	return doors{http: at(port), https: at(port + 1), admin: at(port + 2)}, nil
}

func lookup(env []string, name string) string {
	value := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v // the last one counts, as in a shell
		}
	}
	return value
}

// free reports the first of the addresses that something else listens on, before
// minutes go by.
func (d doors) free() error {
	for _, addr := range []string{d.http, d.https, d.admin} {
		l, err := net.Listen("tcp", addr) //nolint:noctx // listening on loopback does not wait
		if err != nil {
			return fmt.Errorf("can't serve on %s: %w; set LLMQ_LOCAL_PORT to a port with two free ones after it", addr, err)
		}
		_ = l.Close() // nothing was accepted
	}
	return nil
}
