package stack

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// artifact is what a function runs. Artifact and folder have the same name.
type artifact string

const (
	enqueue artifact = "enqueue"
	work    artifact = "worker"
	admin   artifact = "admin"
)

// Code is a folder with one folder per artifact, each of them holding bootstrap and
// llmq.yaml.
type Code struct{ dir string }

// Stage joins the binaries of dist, DIST/ARTIFACT/bootstrap, with the environment's
// file, which differs by environment while they do not. It writes below dir, which may
// be removed once the app is synthesised.
func (e Environment) Stage(dist, dir string) (Code, error) {
	c := Code{dir: filepath.Join(dir, e.Config.Env)}
	needed := []artifact{enqueue, work, admin}
	for _, j := range e.Config.Jobs { // two queues may have one artifact: it is staged twice then, which is the same
		needed = append(needed, artifact(j.Artifact))
	}
	for _, a := range needed {
		to := c.path(a)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return Code{}, fmt.Errorf("stage %s: %w", a, err)
		}
		binary := filepath.Join(dist, string(a), "bootstrap")
		if err := copyFile(binary, filepath.Join(to, "bootstrap"), 0o755); err != nil {
			if errors.Is(err, os.ErrNotExist) {
				return Code{}, fmt.Errorf("%s is missing: build the functions first, by make build, and workers of jobs beside them", binary)
			}
			return Code{}, fmt.Errorf("stage %s: %w", a, err)
		}
		if err := copyFile(e.File, filepath.Join(to, "llmq.yaml"), 0o644); err != nil {
			return Code{}, fmt.Errorf("stage %s: %w", a, err)
		}
	}
	return c, nil
}

func (c Code) path(a artifact) string { return filepath.Join(c.dir, string(a)) }

func copyFile(from, to string, mode os.FileMode) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
