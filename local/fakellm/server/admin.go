package server

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The admin API, under /_admin, takes JSON or YAML, gives JSON, and asks for "Authorization: Bearer" and the
// admin key. Durations are milliseconds, as numbers that may have a fraction.
//
//	PUT    /_admin/program   {"rules":[…],"queue":[…]}: replaces all that is programmed
//	PUT    /_admin/rules     {"rules":[…]}: replaces the rules, and starts their phases
//	POST   /_admin/programs  {"model","region","key","replies":[…]}: queues replies
//	PUT    /_admin/latency   of calls that no rule is for
//	POST   /_admin/release   {"model","region","key"}, all optional; answers {"released":n}
//	POST   /_admin/reset     no body, or {"counters":true} to leave what is programmed
//	GET    /_admin/quotas    each meter: where its phase is, what is in flight and left
//	GET    /_admin/calls     ?model=&region=&after=SEQ&limit=N (default 100, at most 1,000), oldest first
//	GET    /_admin/stats
//	GET    /_admin/timeline  ?model=: each second in which a model, or any, did something
//
// Their meaning is that of Load, SetRules, Program, SetLatency, Release, Reset, Quotas, Calls,
// Stats and Timeline. The fields are those of Rule, Phase, Reply and so on; the package's documentation shows
// a whole program.
const adminPrefix = "/_admin"

const (
	maxAdminBytes     = 8 << 20
	defaultCallsLimit = 100
	maxCallsLimit     = 1000
)

func (s *Server) serveAdmin(w http.ResponseWriter, r *http.Request) {
	if token, found := bearer(r); !found || !s.admin.has(token) {
		w.Header().Set("Www-Authenticate", "Bearer")
		writeAdminError(w, http.StatusUnauthorized, "the admin key is missing or wrong")
		return
	}
	routes := map[string]struct {
		method string
		serve  func(http.ResponseWriter, *http.Request) error
	}{
		"/program":  {http.MethodPut, s.adminProgram},
		"/rules":    {http.MethodPut, s.adminRules},
		"/quotas":   {http.MethodGet, s.adminQuotas},
		"/latency":  {http.MethodPut, s.adminLatency},
		"/programs": {http.MethodPost, s.adminPrograms},
		"/release":  {http.MethodPost, s.adminRelease},
		"/reset":    {http.MethodPost, s.adminReset},
		"/calls":    {http.MethodGet, s.adminCalls},
		"/stats":    {http.MethodGet, s.adminStats},
		"/timeline": {http.MethodGet, s.adminTimeline},
	}
	route, found := routes[strings.TrimPrefix(r.URL.EscapedPath(), adminPrefix)]
	switch {
	case !found:
		paths := slices.Sorted(maps.Keys(routes))
		for i, path := range paths {
			paths[i] = routes[path].method + " " + adminPrefix + path
		}
		writeAdminError(w, http.StatusNotFound, "no such path in the admin API, which has "+strings.Join(paths, ", "))
	case r.Method != route.method:
		w.Header().Set("Allow", route.method)
		writeAdminError(w, http.StatusMethodNotAllowed, "this path takes "+route.method)
	default:
		if err := route.serve(w, r); errors.Is(err, os.ErrDeadlineExceeded) {
			writeAdminError(w, http.StatusRequestTimeout, err.Error())
		} else if err != nil {
			writeAdminError(w, http.StatusBadRequest, err.Error())
		}
	}
}

func writeAdminError(w http.ResponseWriter, status int, message string) {
	write(w, jsonReply(status, map[string]string{"error": message}))
}

// readAdmin decodes the body into v, strictly; an empty body leaves v as it is if that is allowed.
func (s *Server) readAdmin(w http.ResponseWriter, r *http.Request, v any, mayBeEmpty bool) (document, error) {
	body, err := s.readBody(w, r, maxAdminBytes)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the body: %w", err)
	case len(body) == 0 && mayBeEmpty:
		return nil, nil
	case len(body) == 0:
		return nil, errors.New("read the body: it is empty")
	}
	return decodeDocument(body, v)
}

// done answers what needs no further words.
func done(w http.ResponseWriter) error {
	write(w, jsonReply(http.StatusOK, struct{}{}))
	return nil
}

func (s *Server) adminProgram(w http.ResponseWriter, r *http.Request) error {
	body, err := s.readBody(w, r, maxAdminBytes)
	if err != nil {
		return fmt.Errorf("read the body: %w", err)
	}
	program, err := ParseProgram(body)
	if err != nil {
		return err
	}
	if err := s.Load(program); err != nil {
		return err
	}
	return done(w)
}

func (s *Server) adminRules(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Rules []ruleJSON `json:"rules"`
	}
	doc, err := s.readAdmin(w, r, &in, false)
	if err != nil {
		return err
	}
	program, err := programJSON{Rules: in.Rules}.program()
	if err != nil {
		return doc.locate(err)
	}
	if err := s.SetRules(program.Rules...); err != nil {
		return err
	}
	return done(w)
}

func (s *Server) adminLatency(w http.ResponseWriter, r *http.Request) error {
	var in latencyJSON
	doc, err := s.readAdmin(w, r, &in, false)
	if err != nil {
		return err
	}
	latency := in.latency()
	if err := latency.validate(); err != nil {
		return doc.locate(err)
	}
	if err := s.SetLatency(latency); err != nil {
		return err
	}
	return done(w)
}

func (s *Server) adminPrograms(w http.ResponseWriter, r *http.Request) error {
	var in queuedJSON
	doc, err := s.readAdmin(w, r, &in, false)
	if err != nil {
		return err
	}
	q, err := in.queued()
	if err != nil {
		return doc.locate(err)
	}
	if err := s.Program(q.Match, q.Replies...); err != nil {
		return err
	}
	write(w, jsonReply(http.StatusOK, map[string]int{"queued": len(q.Replies)}))
	return nil
}

func (s *Server) adminRelease(w http.ResponseWriter, r *http.Request) error {
	var in matchJSON
	if _, err := s.readAdmin(w, r, &in, true); err != nil {
		return err
	}
	write(w, jsonReply(http.StatusOK, map[string]int{"released": s.Release(in.match())}))
	return nil
}

func (s *Server) adminReset(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Counters bool `json:"counters"`
	}
	if _, err := s.readAdmin(w, r, &in, true); err != nil {
		return err
	}
	if in.Counters {
		s.ResetCounters()
	} else {
		s.Reset()
	}
	return done(w)
}

func (s *Server) adminCalls(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	after, err := queryNumber(query.Get("after"), 0)
	if err != nil {
		return fmt.Errorf("after: %w", err)
	}
	limit, err := queryNumber(query.Get("limit"), defaultCallsLimit)
	if err != nil {
		return fmt.Errorf("limit: %w", err)
	}
	if limit == 0 || limit > maxCallsLimit {
		return fmt.Errorf("limit: want 1 to %d", maxCallsLimit)
	}
	calls := make([]callJSON, 0, defaultCallsLimit)
	for _, c := range s.Calls() {
		if uint64(len(calls)) == limit {
			break
		}
		if c.Seq > after && (query.Get("model") == "" || query.Get("model") == c.Model) && (query.Get("region") == "" || query.Get("region") == c.Region) {
			calls = append(calls, newCallJSON(c))
		}
	}
	write(w, jsonReply(http.StatusOK, map[string][]callJSON{"calls": calls}))
	return nil
}

func queryNumber(value string, absent uint64) (uint64, error) {
	if value == "" {
		return absent, nil
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return 0, errors.New("want a whole number of 0 or more")
	}
	return n, nil
}

func (s *Server) adminStats(w http.ResponseWriter, _ *http.Request) error {
	write(w, jsonReply(http.StatusOK, newStatsJSON(s.Stats(), time.Now())))
	return nil
}

func (s *Server) adminQuotas(w http.ResponseWriter, _ *http.Request) error {
	all := []quotaJSON{}
	for _, q := range s.Quotas() {
		all = append(all, newQuotaJSON(q))
	}
	write(w, jsonReply(http.StatusOK, map[string][]quotaJSON{"quotas": all}))
	return nil
}

func (s *Server) adminTimeline(w http.ResponseWriter, r *http.Request) error {
	seconds := []secondJSON{}
	for _, each := range s.Timeline(r.URL.Query().Get("model")) {
		each.At = each.At.UTC()
		seconds = append(seconds, secondJSON(each))
	}
	write(w, jsonReply(http.StatusOK, map[string][]secondJSON{"seconds": seconds}))
	return nil
}
