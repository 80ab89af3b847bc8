package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// The admin API, under /_admin, takes and gives JSON and asks for "Authorization: Bearer" and the
// admin key. Durations are milliseconds, as numbers that may have a fraction.
//
//	PUT  /_admin/latency   {"distribution","mean_ms","deviation_ms","min_ms","max_ms","seed"}
//	POST /_admin/programs  {"model","region","replies":[{"status","code","message","headers",
//	                       "body" | "body_base64","delay_ms","hang","reset","times"}]}
//	POST /_admin/release   {"model","region"}, both optional; answers {"released":n}
//	POST /_admin/reset     no body
//	GET  /_admin/calls     ?model=&after=SEQ&limit=N (default 100, at most 1,000), oldest first
//	GET  /_admin/stats
//
// Their meaning is that of SetLatency, Program, Release, Reset, Calls and Stats.
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
		"/latency":  {http.MethodPut, s.adminLatency},
		"/programs": {http.MethodPost, s.adminPrograms},
		"/release":  {http.MethodPost, s.adminRelease},
		"/reset":    {http.MethodPost, s.adminReset},
		"/calls":    {http.MethodGet, s.adminCalls},
		"/stats":    {http.MethodGet, s.adminStats},
	}
	route, found := routes[strings.TrimPrefix(r.URL.EscapedPath(), adminPrefix)]
	switch {
	case !found:
		writeAdminError(w, http.StatusNotFound, "no such path in the admin API")
	case r.Method != route.method:
		w.Header().Set("Allow", route.method)
		writeAdminError(w, http.StatusMethodNotAllowed, "this path takes "+route.method)
	default:
		if err := route.serve(w, r); err != nil {
			writeAdminError(w, http.StatusBadRequest, err.Error())
		}
	}
}

func writeAdminError(w http.ResponseWriter, status int, message string) {
	write(w, jsonReply(status, map[string]string{"error": message}))
}

// readAdmin decodes the body into v, strictly; an empty body leaves v as it is if that is allowed.
func readAdmin(w http.ResponseWriter, r *http.Request, v any, mayBeEmpty bool) error {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAdminBytes))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(v)
	if errors.Is(err, io.EOF) && mayBeEmpty {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the body: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("read the body: there is more than one JSON value")
	}
	return nil
}

func (s *Server) adminLatency(w http.ResponseWriter, r *http.Request) error {
	var in latencyJSON
	if err := readAdmin(w, r, &in, false); err != nil {
		return err
	}
	latency, err := in.latency()
	if err != nil {
		return err
	}
	if err := s.SetLatency(latency); err != nil {
		return err
	}
	write(w, jsonReply(http.StatusOK, struct{}{}))
	return nil
}

func (s *Server) adminPrograms(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		matchJSON
		Replies []replyJSON `json:"replies"`
	}
	if err := readAdmin(w, r, &in, false); err != nil {
		return err
	}
	if len(in.Replies) == 0 {
		return errors.New("replies: want at least one")
	}
	replies := make([]Reply, 0, len(in.Replies))
	for i, each := range in.Replies {
		reply, err := each.reply()
		if err != nil {
			return fmt.Errorf("replies[%d]: %w", i, err)
		}
		replies = append(replies, reply)
	}
	if err := s.Program(in.match(), replies...); err != nil {
		return err
	}
	write(w, jsonReply(http.StatusOK, map[string]int{"queued": len(replies)}))
	return nil
}

func (s *Server) adminRelease(w http.ResponseWriter, r *http.Request) error {
	var in matchJSON
	if err := readAdmin(w, r, &in, true); err != nil {
		return err
	}
	write(w, jsonReply(http.StatusOK, map[string]int{"released": s.Release(in.match())}))
	return nil
}

func (s *Server) adminReset(w http.ResponseWriter, r *http.Request) error {
	if err := readAdmin(w, r, &struct{}{}, true); err != nil {
		return err
	}
	s.Reset()
	write(w, jsonReply(http.StatusOK, struct{}{}))
	return nil
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
		if c.Seq > after && (query.Get("model") == "" || query.Get("model") == c.Model) {
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
	stats := s.Stats()
	write(w, jsonReply(http.StatusOK, statsJSON{
		All:     gaugeJSON(stats.All),
		Models:  gaugesJSON(stats.Models),
		Regions: gaugesJSON(stats.Regions),
		Keys:    gaugesJSON(stats.Keys),
	}))
	return nil
}
