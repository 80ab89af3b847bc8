package llmq

import (
	"slices"
	"strings"
	"time"
)

// MaxModelRefBytes bounds a model reference; a Bedrock ARN fits well inside it.
const MaxModelRefBytes = 2048

// ModelRef names a model, and at will one of its targets: alias or alias@target.
type ModelRef struct {
	Alias  string // never empty in a parsed reference
	Target string // "" leaves the choice to the model's chain
}

// String is the reference as a caller writes it.
func (r ModelRef) String() string {
	if r.Target == "" {
		return r.Alias
	}
	return r.Alias + "@" + r.Target
}

// ParseModelRef reads alias or alias@target. It checks the form only; whether such
// a model exists is for [Catalogue.Resolve] to say. Characters are those that
// aliases and providers' ids use: letters, digits and . _ - : / +.
func ParseModelRef(s string) (ModelRef, error) {
	bad := func(why string) (ModelRef, error) {
		return ModelRef{}, Errorf(CodeInvalidRequest, "model reference %q %s; write alias or alias@target", Clip(s, 80), why).At("model")
	}
	if s == "" {
		return ModelRef{}, Errorf(CodeInvalidRequest, "model is missing; name a configured model, as alias or alias@target").At("model")
	}
	if len(s) > MaxModelRefBytes {
		return bad("is longer than 2048 bytes")
	}
	alias, target, pinned := strings.Cut(s, "@")
	if alias == "" || (pinned && target == "") {
		return bad("has an empty part")
	}
	for _, part := range []string{alias, target} {
		for _, c := range []byte(part) {
			if !refByte(c) {
				return bad("holds a character that no model name has")
			}
		}
	}
	return ModelRef{Alias: alias, Target: target}, nil
}

func refByte(c byte) bool {
	return alphanumeric(c) || strings.IndexByte("._-:/+", c) >= 0
}

// Target is one place that serves a model.
type Target struct {
	Model          string // the alias it belongs to
	Name           string // unique within its model
	Provider       string // name of a configured provider
	ModelID        string // the provider's own name of the model; "" passes the caller's on
	Wires          []Wire // what its provider speaks for it; never empty
	MaxConcurrency int    // calls in flight over all workers, whatever is learned; 0 is no cap
	Limits         Limits
	Pace           Pace
	Shared         SharedLimits // of its provider, the same in each of the provider's targets
	Tokens         TokenRule
	Tiers          []Tier   // service tiers that it has; a lane whose own is none of them asks for none
	HostedTools    []string // tools that its provider may run itself, by their type
}

// Tier is a provider's service tier.
type Tier string

// The tiers that lanes ask for. OpenAI and Bedrock call them so.
const (
	TierPriority Tier = "priority"
	TierDefault  Tier = "default"
	TierFlex     Tier = "flex"
)

// Tier is the service tier that l asks for where a target has it (FEATURES D12); "" is none.
func (t Target) Tier(l Lane) Tier {
	own := map[Lane]Tier{LaneRT: TierPriority, LaneBG: TierDefault, LaneBulk: TierFlex}[l]
	if !slices.Contains(t.Tiers, own) {
		return ""
	}
	return own
}

// Speaks reports whether t can be called on w.
func (t Target) Speaks(w Wire) bool { return slices.Contains(t.Wires, w) }

// String is the target's name in logs, keys and meta: alias@target.
func (t Target) String() string { return t.Model + "@" + t.Name }

// ModelSet lists what a key may use: models by alias, with all their targets, and single
// targets as alias@target. An empty one is nothing.
type ModelSet []string

// Has reports whether t is one of them.
func (s ModelSet) Has(t Target) bool {
	return slices.Contains(s, t.Model) || slices.Contains(s, t.String())
}

// JobTarget and JobProvider are what a queue of jobs has in a target's place. No configured provider can have that name.
const (
	JobTarget   = "jobs"
	JobProvider = "llmq.jobs"
)

// Model is a configured model: its lanes and the targets that serve it, in the
// order in which they are tried.
type Model struct {
	Alias   string
	Lanes   []Lane   // lanes that have a queue of their own; rt and bg always, but of a queue of jobs
	Targets []Target // at least one
	Any     bool     // local only: takes every name that no other model has

	Timeouts, EmbedTimeouts map[Lane]time.Duration // deadlines of calls, and of embeddings, that name none; what is missing is the lane's
}

// Jobs reports whether m is a queue of jobs: its one target stands for all functions that its workers have, and only they know
// which these are.
func (m Model) Jobs() bool { return len(m.Targets) == 1 && m.Targets[0].Speaks(WireJob) }

// Queue is the lane whose queue a request of lane l is sent to: bulk falls back
// to the default queue where it has none of its own (FEATURES B1).
func (m Model) Queue(l Lane) Lane {
	switch {
	case slices.Contains(m.Lanes, l):
		return l
	case m.Jobs():
		return LaneBulk
	}
	return LaneBG
}

// Wires lists the wires that any of m's targets speaks, in a fixed order.
func (m Model) Wires() []Wire {
	var ws []Wire
	for _, w := range append(Wires(), WireJob) {
		if slices.ContainsFunc(m.Targets, func(t Target) bool { return t.Speaks(w) }) {
			ws = append(ws, w)
		}
	}
	return ws
}

// Catalogue is the set of configured models. It is never changed once built, so
// it is safe for concurrent use.
type Catalogue struct{ models []Model }

// NewCatalogue holds models in the order given. The caller has validated them:
// aliases are unique and at most one model has Any set.
func NewCatalogue(models []Model) Catalogue { return Catalogue{models: slices.Clone(models)} }

// Models lists every model in configured order.
func (c Catalogue) Models() []Model { return slices.Clone(c.models) }

// Target is the target of that name; false where there is none.
func (c Catalogue) Target(alias, name string) (Target, bool) {
	for _, m := range c.models {
		if m.Alias != alias {
			continue
		}
		for _, t := range m.Targets {
			if t.Name == name {
				return t, true
			}
		}
	}
	return Target{}, false
}

// Timeout is the deadline of a model's calls that name none, counted from their arrival; 0 is the lane's.
func (c Catalogue) Timeout(alias string, op Op, l Lane) time.Duration {
	for _, m := range c.models {
		switch {
		case m.Alias != alias:
		case op == OpEmbeddings:
			return m.EmbedTimeouts[l]
		default:
			return m.Timeouts[l]
		}
	}
	return 0
}

// Resolve finds the model that a reference names: by alias, else by a target's own
// model id (Bedrock callers may send it), else the local catch-all. The targets are
// those that may serve it on w: the pinned one, or all in order.
//
// It returns [CodeModelNotFound] for an unknown model or target and
// [CodeWrongWire] when none of the targets speaks w.
func (c Catalogue) Resolve(ref ModelRef, w Wire) (Model, []Target, error) {
	m, targets, err := c.find(ref)
	if err != nil {
		return Model{}, nil, err
	}
	if w == WireJob && m.Jobs() && ref.Target == "" {
		return m, nil, Errorf(CodeInvalidRequest, "%q names a queue of jobs and no function; write %s@FUNCTION", ref.Alias, ref.Alias).At("model")
	}
	speaking := slices.DeleteFunc(slices.Clone(targets), func(t Target) bool { return !t.Speaks(w) })
	if len(speaking) == 0 {
		return m, nil, Errorf(CodeWrongWire, "model %q does not speak the %s wire; it speaks %s", ref, w, joinWires(m.Wires())).At("model")
	}
	return m, speaking, nil
}

func (c Catalogue) find(ref ModelRef) (Model, []Target, error) {
	for _, m := range c.models {
		if m.Alias != ref.Alias {
			continue
		}
		if ref.Target == "" {
			return m, m.Targets, nil
		}
		if m.Jobs() { // whether there is such a function, its workers know
			t := m.Targets[0]
			t.ModelID = ref.Target
			return m, []Target{t}, nil
		}
		for _, t := range m.Targets {
			if t.Name == ref.Target {
				return m, []Target{t}, nil
			}
		}
		names := make([]string, 0, len(m.Targets))
		for _, t := range m.Targets {
			names = append(names, t.Name)
		}
		return Model{}, nil, Errorf(CodeModelNotFound, "model %q has no target %q%s", ref.Alias, ref.Target, hint(ref.Target, names)).At("model")
	}
	if ref.Target == "" {
		for _, m := range c.models {
			for _, t := range m.Targets {
				if t.ModelID == ref.Alias {
					return m, []Target{t}, nil
				}
			}
		}
		for _, m := range c.models {
			if m.Any {
				return m, m.Targets, nil
			}
		}
	}
	names := make([]string, 0, len(c.models))
	for _, m := range c.models {
		names = append(names, m.Alias)
	}
	next := hint(ref.Alias, names)
	if next == "" {
		next = "; GET /v1/models lists what is"
	}
	return Model{}, nil, Errorf(CodeModelNotFound, "model %q is not configured%s", Clip(ref.Alias, 80), next).At("model")
}

func hint(got string, names []string) string {
	if near := Nearest(got, names); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

func joinWires(ws []Wire) string {
	parts := make([]string, len(ws))
	for i, w := range ws {
		parts[i] = string(w)
	}
	return strings.Join(parts, ", ")
}
