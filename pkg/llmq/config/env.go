package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// knob is a variable that is no plain setting's.
type knob struct {
	name string
	doc  string                // for docs/CONFIG.md
	set  func(overlay, string) // nil: read elsewhere
}

// knobs lists the variables that the table of settings lacks.
func knobs() []knob {
	return []knob{
		{"LLMQ_CONFIG", "path of the configuration file. Default: llmq.yaml beside a function's code, else in the working directory", nil},
		{logLevelVar, "the least that functions log: debug, info, warn or error. debug follows each call step by step, and is never a prompt or a reply. Default: info", overlay.logLevel},
		{"LLMQ_LOCAL_PORT", "port that `make run` serves on; https is on the next one, the admin API on the one after. Default: 8080", nil},
		{"LLMQ_ADMIN_URL", "where operators reach the admin API; not read by functions", nil},
		{"LLMQ_ADMIN_KEY", "key of a local admin API; not read by functions", nil},
		{"LLMQ_REDIS_URL", "valkey.address, valkey.tls and valkey.username in one: redis://host:port or rediss://user@host:port (TLS)", overlay.redisURL},
		{"LLMQ_REDIS_HOST", "host of valkey.address; the port stays, or is 6379", overlay.redisHost},
		{"LLMQ_REDIS_PORT", "port of valkey.address; the host stays, or is localhost", overlay.redisPort},
		{"LLMQ_REDIS_PASSWORD", "the password itself; local only", overlay.redisPassword},
		{"LLMQ_ID_HASH_SALT", "the salt itself of id_hash_salt; local only", overlay.idHashSalt},
		{"LLMQ_KEY_PEPPER", "the pepper itself of key_pepper; local only", overlay.keyPepper},
		{"LLMQ_KEY_PEPPER_ARN", "ARN of key_pepper; set by the deployment", overlay.keyPepperARN},
		{"LLMQ_AC_MAX_BY_MODEL", `models.*.targets[].max_concurrency, as JSON: {"alias": 20, "alias@target": 5}. An alias alone sets each of its targets`, overlay.maxByModel},
		{"LLMQ_AC_INITIAL", `models.*.targets[].limiter_initial, as JSON in the same form`, overlay.initialByModel},
		{settingsVar, `settings of single models, targets and providers, as JSON: {"models": {"alias": {"max_concurrency": 30, "timeout_secs": {"rt": 60}}, "alias@target": {"rpm": 60}}, "providers": {"name": {"shared_rpm": 60}}}. It takes the keys that stand there, from max_concurrency on, with the same bounds; an alias sets each of its targets`, overlay.perEntry},
	}
}

// variables is env by name. The last of a name wins, as it does for a process. An
// empty variable is as good as none.
func variables(env []string) map[string]string {
	vars := map[string]string{}
	for _, kv := range env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			vars[name] = value
		}
	}
	return vars
}

// overlay sets variables over what the file says.
type overlay struct {
	*report
	draft draft
	vars  map[string]string
}

func (o overlay) apply(rows []setting) {
	known := map[string]bool{}
	for _, st := range rows {
		if st.env == "" {
			continue
		}
		for _, s := range o.draft.scopes(st.path) {
			name := st.variable(s)
			known[name] = true
			if o.vars[name] == "" {
				continue
			}
			path := o.give(s.prefix+st.leaf(), name)
			if problem := st.storeText(st.at(&s), o.vars[name]); problem != "" {
				o.fault(path, "%s", problem)
			}
		}
		if strings.HasPrefix(st.path, "providers.") { // known even where there is no provider
			known[st.env] = true
		}
	}
	for _, k := range knobs() {
		known[k.name] = true
		if k.set != nil && o.vars[k.name] != "" {
			k.set(o, o.vars[k.name])
		}
	}
	o.refuseUnknown(known, rows)
}

// give notes that a variable gives a setting. Where the file's value is at fault,
// that stays the one to be mended.
func (o overlay) give(path, name string) string {
	if o.ok(path) {
		o.given[path] = origin{env: name}
	}
	return path
}

// refuseUnknown reports variables that nothing reads: a misspelt one would be
// ignored in silence otherwise.
func (o overlay) refuseUnknown(known map[string]bool, rows []setting) {
	names := make([]string, 0, len(known))
	for n := range known {
		names = append(names, n)
	}
	slices.Sort(names)
	secrets := o.secretVariables(rows)
	for name := range o.vars {
		if !strings.HasPrefix(name, "LLMQ_") || known[name] || secrets[name] {
			continue
		}
		hint := "; docs/CONFIG.md lists the variables"
		if near := llmq.Nearest(name, names); near != "" {
			hint = "; did you mean " + near + "?"
		}
		if strings.HasPrefix(name, "LLMQ_QUEUE_") { // FEATURES B11
			hint = "; llmq's queues are Amazon SQS's, and queues on Valkey are not served by this release"
		}
		o.faultAt(origin{env: segment(name)}, "", "no such variable%s", hint)
	}
}

// secretVariables are the names that references in the file point to.
func (o overlay) secretVariables(rows []setting) map[string]bool {
	used := map[string]bool{}
	for _, st := range rows {
		if st.form != formSecret {
			continue
		}
		for _, s := range o.draft.scopes(st.path) {
			if ref, ok := st.at(&s).(*Secret); ok {
				used[ref.Env] = true
			}
		}
	}
	return used
}

// redisURL never shows the URL, for a password may be in it.
func (o overlay) redisURL(text string) {
	const name = "LLMQ_REDIS_URL"
	bad := func(problem string) {
		o.faultAt(origin{env: name}, "valkey.address", "%s", problem)
	}
	for _, other := range []string{"LLMQ_REDIS_HOST", "LLMQ_REDIS_PORT", "LLMQ_REDIS_USERNAME", "LLMQ_REDIS_SSL"} {
		if o.vars[other] != "" {
			bad("says the same as " + other + "; set one of them")
			return
		}
	}
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "redis" && u.Scheme != "rediss") || u.Hostname() == "" {
		bad("must be redis://host:port or rediss://host:port")
		return
	}
	if _, has := u.User.Password(); has {
		bad("must hold no password; put it into LLMQ_REDIS_PASSWORD")
		return
	}
	if strings.Trim(u.Path, "/") != "" && u.Path != "/0" || u.RawQuery != "" || u.Fragment != "" {
		bad("must end after the port; there is only database 0 in cluster mode")
		return
	}
	v := &o.draft.cfg.Valkey
	v.Address, v.TLS = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "6379")), u.Scheme == "rediss"
	o.give("valkey.address", name)
	o.give("valkey.tls", name)
	if user := u.User.Username(); user != "" {
		v.Username = user
		if path := o.give("valkey.username", name); !usernamePattern.MatchString(user) {
			o.fault(path, "must match %s", shape(usernamePattern))
		}
	}
}

func (o overlay) redisHost(host string) {
	_, port := o.address()
	o.setAddress("LLMQ_REDIS_HOST", host, port)
}

func (o overlay) redisPort(port string) {
	host, _ := o.address()
	o.setAddress("LLMQ_REDIS_PORT", host, port)
}

// address is the host and the port so far.
func (o overlay) address() (host, port string) {
	host, port, err := net.SplitHostPort(o.draft.cfg.Valkey.Address)
	if err != nil {
		return "localhost", "6379"
	}
	return host, port
}

func (o overlay) setAddress(name, host, port string) {
	if o.vars["LLMQ_REDIS_URL"] != "" {
		return // reported there
	}
	o.draft.cfg.Valkey.Address = net.JoinHostPort(host, port)
	o.give("valkey.address", name)
}

func (o overlay) redisPassword(string) {
	o.draft.cfg.Valkey.Password = Secret{Env: "LLMQ_REDIS_PASSWORD"}
	o.give("valkey.password", "LLMQ_REDIS_PASSWORD")
}

func (o overlay) idHashSalt(string) {
	o.draft.cfg.IDSalt = Secret{Env: "LLMQ_ID_HASH_SALT"}
	o.give("id_hash_salt", "LLMQ_ID_HASH_SALT")
}

func (o overlay) keyPepper(string) {
	o.draft.cfg.KeyPepper = Secret{Env: "LLMQ_KEY_PEPPER"}
	o.give("key_pepper", "LLMQ_KEY_PEPPER")
}

func (o overlay) keyPepperARN(arn string) {
	o.draft.cfg.KeyPepper = Secret{ARN: arn}
	o.give("key_pepper", "LLMQ_KEY_PEPPER_ARN")
}

// maxByModel sets the caps of targets.
func (o overlay) maxByModel(text string) { o.byModel("LLMQ_AC_MAX_BY_MODEL", "max_concurrency", text) }

// initialByModel sets what targets begin with.
func (o overlay) initialByModel(text string) { o.byModel("LLMQ_AC_INITIAL", "limiter_initial", text) }

// byModel sets a number of targets.
func (o overlay) byModel(name, leaf, text string) {
	caps, err := readCaps(text)
	if err != nil {
		o.faultAt(origin{env: name}, "", `must be JSON such as {"alias": 20}: %v`, err)
		return
	}
	for _, c := range caps {
		alias, pinned, _ := strings.Cut(c.ref, "@")
		o.setCap(name, leaf, c, alias, pinned)
	}
}

func (o overlay) setCap(name, leaf string, c capOf, alias, pinned string) {
	rows := models()
	st := rows[slices.IndexFunc(rows, func(st setting) bool { return st.path == "models.*.targets[]."+leaf })]
	hits := o.targets(alias, pinned)
	for _, s := range hits {
		path := o.give(s.prefix+st.leaf(), name)
		if problem := st.store(st.at(&s), c.limit); problem != "" {
			o.fault(path, "%s", problem)
		}
	}
	if hits == nil {
		o.noModel(name, c.ref)
	}
}

// targets are those of a model, or the one that is pinned.
func (o overlay) targets(alias, pinned string) []scope {
	var hits []scope
	for _, s := range o.draft.scopes("models.*.targets[].") {
		if s.model.Alias == alias && (pinned == "" || s.target.Name == pinned) {
			hits = append(hits, s)
		}
	}
	return hits
}

// noModel reports a variable that names a model or a target that is not there.
func (o overlay) noModel(name, ref string) {
	var known []string
	for _, m := range o.draft.cfg.Models {
		known = append(known, m.Alias)
		for _, t := range m.Targets {
			known = append(known, m.Alias+"@"+t.Name)
		}
	}
	o.faultAt(origin{env: name}, "", "no model is named %q%s", llmq.Clip(ref, 60), didYouMean(ref, known, "models"))
}

// capOf is one pair of LLMQ_AC_MAX_BY_MODEL.
type capOf struct{ ref, limit string }

// readCaps reads an object of numbers in its order, an alias before its targets so
// that the closer one wins.
func readCaps(text string) ([]capOf, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New("it is no object")
	}
	var caps []capOf
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, errors.New("it ends early or holds a name that is none")
		}
		ref, _ := name.(string) // an object's names are strings
		value, err := dec.Token()
		n, isNumber := value.(json.Number)
		if err != nil || !isNumber {
			return nil, errors.New("the value of " + strconv.Quote(llmq.Clip(ref, 60)) + " is no number")
		}
		if slices.ContainsFunc(caps, func(c capOf) bool { return c.ref == ref }) {
			return nil, errors.New(strconv.Quote(llmq.Clip(ref, 60)) + " is given twice")
		}
		caps = append(caps, capOf{ref, n.String()})
	}
	if _, err := dec.Token(); err != nil {
		return nil, errors.New("it ends early")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the object")
	}
	slices.SortStableFunc(caps, func(a, b capOf) int {
		return strings.Count(a.ref, "@") - strings.Count(b.ref, "@")
	})
	return caps, nil
}
