package config

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Path is where the configuration lies: LLMQ_CONFIG, else llmq.yaml beside a
// function's code, else llmq.yaml in the working directory.
func Path(env []string) string {
	vars := variables(env)
	if p := vars["LLMQ_CONFIG"]; p != "" {
		return p
	}
	if root := vars["LAMBDA_TASK_ROOT"]; root != "" {
		return filepath.Join(root, "llmq.yaml")
	}
	return "llmq.yaml"
}

// Load reads the file at path, sets the LLMQ_* variables of env (as os.Environ
// gives them) over it, fills defaults in and validates the whole.
//
// Its error is [Faults], with every fault and not the first alone; errors.Is on it
// holds for [llmq.CodeConfiguration], and for the cause of an unreadable file.
func Load(path string, env []string) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, Faults{{File: path, Problem: "can't be read: " + reason(err), Err: err}}
	}
	return Parse(path, data, env)
}

// Parse is [Load] on the bytes of a file that is called name in faults.
func Parse(name string, data []byte, env []string) (*Config, error) {
	rows := settings()
	rep := newReport(name)
	d := newDraft(&Config{})
	if r := (&reader{report: rep, draft: d}); !r.read(data, rows) {
		return nil, rep.err()
	}
	v := variables(env)
	overlay{report: rep, draft: d, vars: v}.apply(rows)
	fillDefaults(rep, d, rows)
	derive(rep, d)
	(&checker{report: rep, cfg: d.config(), vars: v}).check()
	if err := rep.err(); err != nil {
		return nil, err
	}
	d.cfg.given = map[string]bool{}
	for path := range rep.given {
		d.cfg.given[path] = true
	}
	return d.cfg, nil
}

// Default is a configuration of a kind with every default and no keys, providers
// or models, to build on in code before [Config.Marshal].
func Default(kind Kind) *Config {
	d := newDraft(&Config{Kind: kind})
	rep := newReport("")
	fillDefaults(rep, d, settings()) // what is missing is for the caller to add
	derive(rep, d)
	return d.config()
}

// fillDefaults sets what neither the file nor a variable gave, and reports what
// has to be given.
func fillDefaults(rep *report, d draft, rows []setting) {
	for _, st := range rows {
		if st.form == formMap || st.form == formItems {
			fillEntries(rep, d, st)
			continue
		}
		for _, s := range d.scopes(st.path) {
			path := s.prefix + st.leaf()
			if _, given := rep.given[path]; given {
				continue // rules leave it alone where it could not be read
			}
			field := st.at(&s)
			switch text := st.fallback(s); {
			case text != "":
				st.storeDefault(field, text)
			case st.required:
				rep.fault(path, "is missing: %s", st.doc)
			}
		}
	}
}

// fillEntries reports a collection that needs an entry and has none.
func fillEntries(rep *report, d draft, st setting) {
	if !st.required {
		return
	}
	for _, s := range d.scopes(st.path) {
		path, n := s.prefix+st.collection(), 0
		switch st.path {
		case "providers.*":
			n = len(s.cfg.Providers)
		case "models.*":
			n = len(s.cfg.Models)
		case "models.*.targets[]":
			n = len(s.model.Targets)
		}
		if n == 0 {
			rep.fault(path, "needs at least one entry: %s", st.doc)
		}
	}
}

// derive sets the defaults that depend on other settings, and brings URLs into
// their one form.
func derive(rep *report, d draft) {
	c := d.cfg
	if _, given := rep.given["valkey.address"]; !given && c.Kind == KindLocal {
		c.Valkey.Address = "localhost:6379"
	}
	if _, given := rep.given["governor.enabled"]; !given && c.Kind == KindLocal {
		c.Governor.Enabled = false
	}
	types := map[string]Provider{}
	for i := range c.Providers {
		p := &c.Providers[i]
		if p.Region == "" && p.Type == ProviderBedrock {
			p.Region = c.Region
		}
		deriveBaseURL(c.Kind, p)
		types[p.Name] = *p
	}
	for i := range c.Models {
		for j := range c.Models[i].Targets {
			t := &c.Models[i].Targets[j]
			if p, found := types[t.Provider]; found && p.Type != "" && t.Wires == nil {
				t.Wires = p.Wires()
			}
		}
	}
}

// readFile reads at most a byte more than is allowed, which is then refused.
func readFile(path string) (data []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(io.LimitReader(f, maxFileBytes+1))
}

// reason is err without the path, which the fault names already.
func reason(err error) string {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}
