package wiring

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	store "github.com/llm-queue/llmq/pkg/llmq/internal/valkey"
	"github.com/llm-queue/llmq/pkg/llmq/results"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// mixer is something between a client and its server that puts a reply of its own before the next one of each connection, so that
// all that follow are one late.
type mixer struct {
	t      testing.TB
	target string
	ln     net.Listener
	tasks  sync.WaitGroup

	mu    sync.Mutex // guards all below
	extra map[net.Conn][]byte
	dials int
}

func newMixer(t testing.TB, target string) *mixer {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mixer{t: t, target: target, ln: ln, extra: map[net.Conn][]byte{}}
	m.tasks.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			m.tasks.Go(func() { m.join(c) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); m.tasks.Wait() })
	return m
}

func (m *mixer) join(c net.Conn) {
	defer c.Close() // a link of a test
	s, err := new(net.Dialer).DialContext(context.WithoutCancel(m.t.Context()), "tcp4", m.target)
	if err != nil {
		m.t.Errorf("dial: %v", err)
		return
	}
	m.mu.Lock()
	m.extra[c], m.dials = nil, m.dials+1
	m.mu.Unlock()
	m.tasks.Go(func() { _, _ = io.Copy(s, c); _ = s.Close() })
	b := make([]byte, 64<<10)
	for {
		n, err := s.Read(b)
		if err != nil {
			return
		}
		m.mu.Lock()
		first := m.extra[c]
		m.extra[c] = nil
		m.mu.Unlock()
		if _, err := c.Write(append(first, b[:n]...)); err != nil {
			return
		}
	}
}

// mixUp puts the value, as a reply, before the next one of each connection that there is.
func (m *mixer) mixUp(value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.extra {
		m.extra[c] = fmt.Appendf(nil, "$%d\r\n%s\r\n", len(value), value)
	}
}

// SEC07, KT6: where the replies of the state store are mixed up between two tenants' requests, each gets its own all the same, and
// nothing of the other's; it is counted once, and the connection that did it is used no more.
func TestResults_RepliesThatAreMixedUpReachNobody(t *testing.T) {
	t.Parallel()
	server := realValkey(t, false)
	between := newMixer(t, server.Addr())
	var trust store.Trust
	rdb, err := store.Dial(store.Options{Address: between.ln.Addr().String(), Password: server.Password(), CommandTimeout: 5 * time.Second, DialTimeout: 5 * time.Second, PoolSize: 1, Trust: &trust})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	log, rec, space := &syncBuffer{}, telemetry.NewRecorder(), keys.New("mixed")
	r := results.New(rdb, space, noBodies{}, math.MaxInt)
	r.Mixed = mixed(telemetry.NewStore("door", rec, slog.New(slog.NewTextHandler(log, nil))), &trust)
	put := func(tenant string) (llmq.Request, string) {
		req := llmq.Request{ID: "same", Tenant: tenant}
		stored, _, err := r.Encode(t.Context(), llmq.Result{RID: req.RID(), Tenant: tenant, Reply: &llmq.Reply{Status: 200, ContentType: "application/json", Body: []byte(`"of ` + tenant + `"`)}}, false)
		if err == nil {
			err = rdb.Set(t.Context(), space.Call(tenant, req.RID()).Result, stored, 0).Err()
		}
		if err != nil {
			t.Fatalf("store: %v", err)
		}
		return req, string(stored)
	}
	a, storedA := put("acme")
	b, _ := put("globex")
	read := func(req llmq.Request) {
		t.Helper()
		var batch luascript.Batch
		look := r.Look(&batch, req)
		if err := batch.Run(t.Context(), rdb); err != nil {
			t.Fatalf("look: %v", err)
		}
		stored, err := look()
		if err != nil {
			t.Fatalf("look: %v", err)
		}
		res, err := r.Decode(t.Context(), req, stored)
		if err != nil || string(res.Reply.Body) != `"of `+req.Tenant+`"` {
			t.Errorf("%s got %+v, %v", req.Tenant, res.Reply, err)
		}
	}
	read(b)
	before := between.dials
	between.mixUp(storedA)
	for range 3 {
		read(b)
		read(a)
	}
	between.mu.Lock()
	dials := between.dials - before
	between.mu.Unlock()
	if dials != 1 {
		t.Errorf("%d connections were made anew, want one", dials)
	}
	var emf strings.Builder
	if err := rec.FlushEMF(&emf, "llmq"); err != nil {
		t.Fatal(err)
	}
	if said := emf.String(); strings.Count(said, "mixed_up") != 1 || !strings.Contains(said, `"llmq_store_errors_total":1`) {
		t.Errorf("metrics: %s", said)
	}
	if said := log.String(); strings.Count(said, "state_store_mixed_up") != 1 || strings.Contains(said, "of acme") {
		t.Errorf("log: %s", said)
	}
}
