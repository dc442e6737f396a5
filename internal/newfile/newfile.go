// Package newfile writes the files that a program makes for its user, whole or not at
// all: a full disk leaves what was there before.
package newfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Write makes a file of what content writes, in place of the one that is there,
// whose permissions it keeps. It writes a file beside it, which takes its name once all
// is on the disk, and is removed where anything fails. Links are followed, and
// devices and pipes are written to directly. It returns the error of content, or of the first
// call to the system that failed, with the name.
func Write(name string, content func(io.Writer) error) error {
	if err := replace(name, content); err != nil {
		var path *fs.PathError
		if errors.As(err, &path) { // it names the file beside
			err = path.Err
		}
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	return nil
}

func replace(name string, content func(io.Writer) error) error {
	if to, err := filepath.EvalSymlinks(name); err == nil {
		name = to
	} else if to, e := os.Readlink(name); e == nil && missing(name) {
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(name), to)
		}
		return replace(to, content)
	}
	perm := fs.FileMode(0)
	switch info, err := os.Stat(name); {
	case err == nil && !info.Mode().IsRegular():
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(content(f), f.Close())
	case err == nil:
		perm = info.Mode().Perm()
		f, err := os.OpenFile(name, os.O_WRONLY, 0) // a file that is protected stays
		if err != nil {
			return err
		}
		_ = f.Close() // of what was not written to
	}
	f, err := beside(name)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // has its own name, once all went well
	defer f.Close()
	if perm != 0 {
		if err := f.Chmod(perm); err != nil {
			return err
		}
	}
	if err := content(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// missing reports whether there is nothing where a name leads. Links of /proc to pipes lead somewhere, and name no file.
func missing(name string) bool {
	_, err := os.Stat(name)
	return errors.Is(err, fs.ErrNotExist)
}

// beside makes an empty file with a name that nobody else has.
func beside(name string) (*os.File, error) {
	for {
		part := filepath.Join(filepath.Dir(name), fmt.Sprintf(".%.100s.%016x.part", filepath.Base(name), rand.Uint64()))
		f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}
