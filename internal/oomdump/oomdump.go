// Package oomdump writes what a pool held when it ran out of memory to files.
package oomdump

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/cupool/cupool/internal/newfile"
	"github.com/cupool/cupool/snapshot"
)

// What a folder may come to: as many dumps, and as much in each file.
const (
	MaxDumps   = 8
	maxBytes   = 64 << 20
	mostEvents = 65_536 // of each pool, the last ones
)

// Write makes three files in a folder, which it makes where it is not there: a text; the
// snapshot, for PyTorch's viewer and cupool view; and its profile, for go tool pprof. It returns
// what their names begin with, also with an error. Each is there whole or not at all, and one that cannot be
// written, or would have more than 64 MiB, is an error that leaves the others. Of dumps
// that the folder has, the latest stay, so that there are MaxDumps with the new one.
func Write(dir string, now time.Time, text string, of snapshot.Snapshot) (stem string, err error) {
	begin := fmt.Sprintf("cupool-oom-%s-%d", now.UTC().Format("20060102T150405.000000000Z"), os.Getpid())
	stem = filepath.Join(dir, begin)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return stem, err
	}
	of = latest(of)
	return stem, errors.Join(
		clean(dir),
		write(stem+".txt", func(w io.Writer) error { _, err := io.WriteString(w, text); return err }),
		write(stem+".pb.gz", func(w io.Writer) error { return snapshot.WriteProfile(w, of) }),
		write(stem+".pickle", func(w io.Writer) error { return snapshot.WriteTorch(w, of) }),
	)
}

// latest returns a snapshot with the last events of each pool.
func latest(s snapshot.Snapshot) snapshot.Snapshot {
	s.Events = s.Events[max(len(s.Events)-mostEvents, 0):]
	s.Pools = slices.Clone(s.Pools)
	for i, p := range s.Pools {
		s.Pools[i] = latest(p)
	}
	return s
}

func write(name string, content func(io.Writer) error) error {
	return newfile.Write(name, func(w io.Writer) error { return content(&bounded{w, maxBytes}) })
}

// bounded is a writer that takes so many bytes.
type bounded struct {
	to   io.Writer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, fmt.Errorf("it has more than %d MiB", maxBytes>>20)
	}
	return b.to.Write(p)
}

// The files of a dump, and those that a process did not live to complete, by when it was.
var ours = regexp.MustCompile(`^\.?(cupool-oom-\d{8}T\d{6}\.\d{9}Z-\d+)\.(txt|pb\.gz|pickle)(\.[0-9a-f]{16}\.part)?$`)

// clean makes room for one more dump.
func clean(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	dumps := map[string][]string{}
	var stems []string
	for _, e := range entries {
		if m := ours.FindStringSubmatch(e.Name()); m != nil {
			if dumps[m[1]] == nil {
				stems = append(stems, m[1])
			}
			dumps[m[1]] = append(dumps[m[1]], e.Name())
		}
	}
	slices.Sort(stems)
	var errs []error
	for _, stem := range stems[:max(len(stems)-(MaxDumps-1), 0)] {
		for _, name := range dumps[stem] {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
