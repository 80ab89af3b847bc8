//go:build !unix

package cassette_test

import "os"

// pipe is a folder where there are no pipes in folders: no regular file either.
func pipe(path string) error { return os.Symlink(os.TempDir(), path) }
