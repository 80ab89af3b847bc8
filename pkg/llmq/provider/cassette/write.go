package cassette

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// write is the one function that puts a recording on the disk, new or rewritten (SECURITY-DESIGN
// CS1). It blanks ids, renders, and then searches the very bytes that it is about to write, and
// what they stand for. A hit means that nothing is written.
//
// The file is there whole or not at all, on the disk when write returns, and readable by its owner
// alone. With replace, r.name is written anew; otherwise the file gets a name that no other has,
// also when several processes record the same request, and write sets r.name.
func write(dir string, r *recording, key Key, secrets []string, replace bool) error {
	if err := unfit(r, secrets); err != nil {
		return err
	}
	if err := scrub(r); err != nil {
		return err
	}
	data, err := encode(r)
	if err != nil {
		return err
	}
	if len(data) > maxFileBytes {
		return fmt.Errorf("the file would have %d bytes; at most %d are written", len(data), maxFileBytes)
	}
	if err := Scan(data, secrets...); err != nil {
		return fmt.Errorf("refused: the file %w", err)
	}
	back, err := decode(data)
	if err != nil {
		return fmt.Errorf("refused: the file could not be read again: %w", err)
	}
	if err := scanParts(back, secrets); err != nil {
		return fmt.Errorf("refused: the %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of recordings: %w", err)
	}
	temp, err := writeTemp(dir, data)
	if err != nil {
		return err
	}
	if replace {
		err = os.Rename(temp, filepath.Join(dir, r.name))
	} else {
		err = errors.Join(place(dir, temp, r, key), os.Remove(temp))
	}
	if err != nil {
		return fmt.Errorf("put the recording in its place: %w", err)
	}
	return syncDir(dir)
}

// unfit says why a recording must not be written, before its ids are blanked: a known secret may
// have one inside, and the zeros would hide the half and leave the other half.
func unfit(r *recording, secrets []string) error {
	if r.request.refused != nil {
		return r.request.refused
	}
	whole := r.response.joined()
	if compressed(r.request.body) || compressed(whole) {
		return errUndeclared
	}
	before := append(slices.Clone(r.request.before), r.request.url.String(), headerText(picked(r.request.header, requestHeaders)),
		headerText(picked(r.response.header, responseHeaders, responsePrefixes...)))
	if clean := blank(whole); len(whole) > 0 && &clean[0] != &whole[0] {
		before = append(before, string(whole))
	}
	for _, text := range before {
		if err := Scan([]byte(text), secrets...); err != nil {
			return fmt.Errorf("refused: the exchange %w", err)
		}
	}
	// Hosts and names of files are in small letters.
	if holdsFolded(r.request.url, secrets) {
		return fmt.Errorf("refused: the URL %w", &SecretError{What: "a known secret"})
	}
	return nil
}

// holdsFolded looks for known secrets in a URL in whichever letters.
func holdsFolded(u *url.URL, secrets []string) bool {
	text := strings.ToLower(u.String())
	if plain, err := url.PathUnescape(text); err == nil {
		text += "\n" + plain
	}
	return slices.ContainsFunc(secrets, func(s string) bool { return len(s) >= MinSecretBytes && strings.Contains(text, strings.ToLower(s)) })
}

// tempPrefix begins the names of files that are being written.
const tempPrefix = ".new-"

// sweep removes what a process left that ended while it wrote: files of that name that nobody has
// written to for an hour. Writing one takes seconds.
func sweep(dir string, now time.Time) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil //nolint:nilerr // a folder that is not there has nothing in it, and whoever reads or writes it next says what is wrong
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < time.Hour {
			continue // another process may have removed it
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cassette: remove what was left: %w", err)
		}
	}
	return nil
}

// writeTemp writes a file under a name that is not a recording's.
func writeTemp(dir string, data []byte) (string, error) {
	path := filepath.Join(dir, tempPrefix+rand.Text())
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("write the recording: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", fmt.Errorf("write the recording: %w", errors.Join(err, os.Remove(path)))
	}
	return path, nil
}

// place links temp to the first name of its request that is free. A link, unlike a rename, fails
// where another process was faster.
func place(dir, temp string, r *recording, key Key) error {
	for n := 1; n <= maxRecordings; n++ {
		name := fmt.Sprintf("%s-%s-%04d.json", slug(r), key, n)
		err := os.Link(temp, filepath.Join(dir, name))
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err == nil {
			r.name = name
		}
		return err
	}
	return fmt.Errorf("%d recordings answer this request already", maxRecordings)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync the folder of recordings: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync the folder of recordings: %w", err)
	}
	return nil
}

// slug is what a request's files begin with, for people: post-api.openai.com-v1-chat-completions.
func slug(r *recording) string {
	const most = 80
	s := strings.ToLower(r.request.method) + "-" + r.request.url.Host + r.request.url.Path
	s = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_' {
			return c
		}
		if c >= 'A' && c <= 'Z' {
			return c + 'a' - 'A'
		}
		return '-'
	}, s)
	return strings.Trim(s[:min(len(s), most)], "-.")
}

// scrub blanks the ids of a recording. In a body that is no text they can't be: a frame's checksum
// covers them.
func scrub(r *recording) error {
	r.request = r.request.scrubbed()
	r.request.header = allowed(r.request.header, requestHeaders)
	r.response.header = allowed(r.response.header, responseHeaders, responsePrefixes...)
	whole := r.response.joined()
	clean := blank(whole)
	if len(whole) == 0 || &clean[0] == &whole[0] {
		return nil
	}
	if text, _ := textOr64(whole); text == nil {
		return errors.New("refused: the reply is binary and holds the id of an account, an organization or a request")
	}
	for i := range r.response.chunks {
		n := len(r.response.chunks[i].body)
		r.response.chunks[i].body, clean = clean[:n:n], clean[n:]
	}
	return nil
}

// Rewrite writes every recording of a folder anew, under today's rules: what they drop or blank
// goes, and a file that they refuse stays as it is and is named in the error. Of o, Dir, Query,
// Secrets and AnyLoopbackPort count. Recording must be allowed, as for mode Record.
func Rewrite(o Options) error {
	o.Mode = Record
	t, err := New(o)
	if err != nil {
		return err
	}
	names, err := list(t.opts.Dir)
	if err != nil {
		return fmt.Errorf("cassette: %w", err)
	}
	var faults []error
	for _, name := range names {
		r, err := read(t.opts.Dir, name)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		r.request.before = append(r.request.before, r.request.url.String())
		r.request.url = t.matched(r.request.url)
		if err := write(t.opts.Dir, r, t.keyOf(r), t.opts.Secrets, true); err != nil {
			faults = append(faults, fmt.Errorf("cassette: %s: %w", filepath.Join(t.opts.Dir, name), err))
		}
	}
	return errors.Join(faults...)
}
