package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// scope is an entry of the configuration whose settings are read or written: the
// pointers to it and to what is around it.
type scope struct {
	prefix   string // of its settings' paths, with the dot
	name     string // of the entry in its collection
	cfg      *Config
	producer *Producer
	provider *Provider
	model    *Model
	target   *Target
	fallback *FallbackModel
	jobs     *JobQueue
	lane     *Lane
}

// draft is a configuration in the making. Lanes are pointers, since fields of a
// map's values can't be set.
type draft struct {
	cfg   *Config
	lanes map[llmq.Lane]*Lane
}

func newDraft(c *Config) draft {
	d := draft{cfg: c, lanes: map[llmq.Lane]*Lane{}}
	for _, l := range llmq.Lanes() {
		lane := c.Lanes[l]
		d.lanes[l] = &lane
	}
	return d
}

// config is the finished configuration.
func (d draft) config() *Config {
	d.cfg.Lanes = map[llmq.Lane]Lane{}
	for l, lane := range d.lanes {
		d.cfg.Lanes[l] = *lane
	}
	return d.cfg
}

// scopes lists the entries that a row of the table stands for.
func (d draft) scopes(path string) []scope {
	root := scope{cfg: d.cfg}
	var out []scope
	switch {
	case strings.HasPrefix(path, "producers[]."):
		for i := range d.cfg.Producers {
			out = append(out, scope{cfg: d.cfg, prefix: producerPath(i) + ".", producer: &d.cfg.Producers[i]})
		}
	case strings.HasPrefix(path, "providers.*."):
		for i := range d.cfg.Providers {
			p := &d.cfg.Providers[i]
			out = append(out, scope{cfg: d.cfg, prefix: providerPath(p.Name) + ".", name: p.Name, provider: p})
		}
	case strings.HasPrefix(path, "models.*.targets[]."):
		for _, s := range d.scopes("models.*.") {
			for i := range s.model.Targets {
				t := s
				t.prefix, t.target = targetPath(s.name, i)+".", &s.model.Targets[i]
				out = append(out, t)
			}
		}
	case strings.HasPrefix(path, "models.*.fallback[]."):
		for _, s := range d.scopes("models.*.") {
			for i := range s.model.Fallback {
				f := s
				f.prefix, f.fallback = fallbackPath(s.name, i)+".", &s.model.Fallback[i]
				out = append(out, f)
			}
		}
	case strings.HasPrefix(path, "models.*."):
		for i := range d.cfg.Models {
			m := &d.cfg.Models[i]
			out = append(out, scope{cfg: d.cfg, prefix: modelPath(m.Alias) + ".", name: m.Alias, model: m})
		}
	case strings.HasPrefix(path, "jobs.*."):
		for i := range d.cfg.Jobs {
			j := &d.cfg.Jobs[i]
			out = append(out, scope{cfg: d.cfg, prefix: jobsPath(j.Name) + ".", name: j.Name, jobs: j})
		}
	case strings.HasPrefix(path, "lanes.*."):
		for _, l := range llmq.Lanes() {
			out = append(out, scope{cfg: d.cfg, prefix: lanePath(l) + ".", name: string(l), lane: d.lanes[l]})
		}
	default:
		out = append(out, root)
	}
	return out
}

// leaf is a row's own part of its path, below its entry's prefix.
func (st setting) leaf() string {
	for _, mark := range []string{"[].", "*."} {
		if i := strings.LastIndex(st.path, mark); i >= 0 {
			return st.path[i+len(mark):]
		}
	}
	return st.path
}

// collection is leaf for formMap and formItems.
func (st setting) collection() string {
	path := strings.TrimSuffix(strings.TrimSuffix(st.path, "[]"), ".*")
	return setting{path: path}.leaf()
}

// variable is the row's variable for an entry.
func (st setting) variable(s scope) string {
	return strings.ReplaceAll(st.env, "*", strings.ToUpper(s.name))
}

// fallback is the row's default for an entry.
func (st setting) fallback(s scope) string {
	if st.laneDef != nil {
		return st.laneDef[llmq.Lane(s.name)]
	}
	return st.def
}

func openProducer(s scope, _ string) scope {
	s.cfg.Producers = append(s.cfg.Producers, Producer{})
	s.producer = &s.cfg.Producers[len(s.cfg.Producers)-1]
	return s
}

func openProvider(s scope, name string) scope {
	s.cfg.Providers = append(s.cfg.Providers, Provider{Name: name})
	s.provider = &s.cfg.Providers[len(s.cfg.Providers)-1]
	return s
}

func openModel(s scope, name string) scope {
	s.cfg.Models = append(s.cfg.Models, Model{Alias: name})
	s.model = &s.cfg.Models[len(s.cfg.Models)-1]
	return s
}

func openJobs(s scope, name string) scope {
	s.cfg.Jobs = append(s.cfg.Jobs, JobQueue{Name: name})
	s.jobs = &s.cfg.Jobs[len(s.cfg.Jobs)-1]
	return s
}

func openTarget(s scope, _ string) scope {
	s.model.Targets = append(s.model.Targets, Target{})
	s.target = &s.model.Targets[len(s.model.Targets)-1]
	return s
}

func openFallback(s scope, _ string) scope {
	s.model.Fallback = append(s.model.Fallback, FallbackModel{})
	s.fallback = &s.model.Fallback[len(s.model.Fallback)-1]
	return s
}

var plainSegment = regexp.MustCompile(`^[A-Za-z0-9_.@-]{1,64}$`)

// segment is a name from the file as part of a path: quoted and cut unless it is
// plain, since it may be anything.
func segment(name string) string {
	if plainSegment.MatchString(name) {
		return name
	}
	return strconv.Quote(llmq.Clip(name, 40))
}

func providerPath(name string) string { return "providers." + segment(name) }
func modelPath(alias string) string   { return "models." + segment(alias) }
func jobsPath(name string) string     { return "jobs." + segment(name) }
func producerPath(i int) string       { return fmt.Sprintf("producers[%d]", i) }

func targetPath(alias string, i int) string {
	return fmt.Sprintf("%s.targets[%d]", modelPath(alias), i)
}

func fallbackPath(alias string, i int) string {
	return fmt.Sprintf("%s.fallback[%d]", modelPath(alias), i)
}

func lanePath(l llmq.Lane) string  { return "lanes." + string(l) }
func join(path, key string) string { return strings.TrimPrefix(path+"."+segment(key), ".") }
func names[T ~string](of []T) (names []string) {
	for _, n := range of {
		names = append(names, string(n))
	}
	return names
}
func laneNames() []string { return names(llmq.Lanes()) }
func wireNames() []string { return names(llmq.Wires()) }

func secondsByLane(of func(llmq.Lane) time.Duration) map[llmq.Lane]string {
	m := map[llmq.Lane]string{}
	for _, l := range llmq.Lanes() {
		m[l] = formatSecs(of(l))
	}
	return m
}
