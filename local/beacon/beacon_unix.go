//go:build unix

package beacon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Light makes a cloud's beacon. The returned function puts it out; a process that is killed leaves a dead one. runtimeDir
// is the value of XDG_RUNTIME_DIR, or "".
func Light(runtimeDir string, c Cloud) (out func() error, err error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	at, err := port(c.URL)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write a beacon: %w", err)
	}
	dir := dirOf(runtimeDir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("make the beacons' folder: %w", err)
	}
	if err := private(dir); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, ".new-*") // 0600
	if err != nil {
		return nil, fmt.Errorf("write a beacon: %w", err)
	}
	name := filepath.Join(dir, at+".json")
	fail := func(err error) (func() error, error) {
		return nil, errors.Join(fmt.Errorf("write a beacon: %w", err), f.Close(), os.Remove(f.Name()))
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fail(err)
	}
	if _, err := f.Write(text); err != nil {
		return fail(err)
	}
	if err := os.Rename(f.Name(), name); err != nil { // in place of a dead one
		return fail(err)
	}
	return func() error {
		err := removeIfSame(name, f)
		_ = os.Remove(dir) // others' beacons keep it
		return errors.Join(err, f.Close())
	}, nil
}

// removeIfSame leaves alone what another process has put in the file's place.
func removeIfSame(name string, f *os.File) error {
	ours, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(name)
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(ours, there) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(name)
}

// Find returns the clouds of this user that run now, by port. Dead beacons are passed over.
func Find(runtimeDir string) ([]Cloud, error) {
	dir := dirOf(runtimeDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for local clouds: %w", err)
	}
	if err := private(dir); err != nil {
		return nil, err
	}
	var found []Cloud
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		c, lit, err := read(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if lit {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b Cloud) int { return strings.Compare(a.URL, b.URL) })
	return found, nil
}

// read reads a beacon and tells whether its owner lives: then its lock is held.
func read(name string) (c Cloud, lit bool, err error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return Cloud{}, false, nil // put out just now
	}
	if err != nil {
		return Cloud{}, false, fmt.Errorf("read a beacon: %w", err)
	}
	defer f.Close() // it was only read
	info, err := f.Stat()
	if err != nil {
		return Cloud{}, false, fmt.Errorf("read a beacon: %w", err)
	}
	if !info.Mode().IsRegular() || !mine(info) {
		return Cloud{}, false, fmt.Errorf("%s is not a file that only this user can read", name)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		return Cloud{}, false, nil // nobody holds it: the lock goes with the file
	}
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return Cloud{}, false, fmt.Errorf("read a beacon: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBytes))
	if err != nil {
		return Cloud{}, false, fmt.Errorf("read a beacon: %w", err)
	}
	c, err = decode(text)
	return c, err == nil, err
}

func dirOf(runtimeDir string) string {
	if info, err := os.Stat(runtimeDir); err == nil && info.IsDir() && filepath.IsAbs(runtimeDir) {
		return filepath.Join(runtimeDir, folder)
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("%s-%d", folder, os.Getuid()))
}

// private refuses a folder that somebody else may have made, or may write: in a shared temp folder anybody can be first.
func private(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("the beacons' folder: %w", err)
	}
	if !info.IsDir() || !mine(info) {
		return fmt.Errorf("%s is not a folder that only this user can use; remove it", dir)
	}
	return nil
}

// mine reports whether a file is this user's, and nobody else may read or write it.
func mine(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid() && info.Mode().Perm()&0o077 == 0
}
