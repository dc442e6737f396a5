package cudatoolkit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// CacheDir returns a directory for headers and libraries that a build needs:
// one in the user's cache directory, or in the temporary directory where that
// cannot be written. The path is the same every time, or Go would build
// everything anew.
func CacheDir() (string, error) {
	var why error
	if cache, err := os.UserCacheDir(); err != nil {
		why = err
	} else if dir := filepath.Join(cache, "cupool"); writable(dir, &why) {
		return dir, nil
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("cupool-%d", os.Getuid()))
	if !writable(dir, &why) {
		return "", fmt.Errorf("no place for headers: set XDG_CACHE_HOME or TMPDIR to a directory that can be written: %w", why)
	}
	// Others may write in the temporary directory too, and what lies here is
	// compiled.
	if st, err := os.Lstat(dir); err != nil || !st.IsDir() || !ownedByUs(st) {
		return "", fmt.Errorf("%s belongs to another user: remove it, or set XDG_CACHE_HOME", dir)
	}
	return dir, nil
}

// writable makes a directory and reports whether files can be made in it. If
// not, it adds the reason to why.
func writable(dir string, why *error) bool {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, ".new-"); err == nil {
			f.Close()
			os.Remove(f.Name())
			return true
		}
	}
	*why = errors.Join(*why, err)
	return false
}
