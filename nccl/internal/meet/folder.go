package meet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
)

// In a folder each rank makes a file NAME.RANK-of-SIZE, and when all have, rank 0
// writes NAME.id-of-SIZE. A rank that has read it takes its own file away, and
// rank 0 that one and its own at the end. Whatever is there too early was left by
// ranks that were killed here, or another process has the same number: nobody goes
// on then.

// lookEvery is how often a rank looks for files.
const lookEvery = 10 * time.Millisecond

// path returns the name of a file: of a rank, or "id".
func (c Config) path(of any) string {
	return filepath.Join(c.Folder, fmt.Sprintf("%s.%v-of-%d", c.Name, of, c.Size))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// look notes whether a rank is there.
func (c Config) look(r roll, rank int) { r.note(rank, exists(c.path(rank))) }

// lookAtAll notes which ranks are there.
func (c Config) lookAtAll(r roll) {
	for rank := range c.Size {
		c.look(r, rank)
	}
}

// claim makes this rank's file, which its result takes away.
func (c Config) claim() (back func(), err error) {
	path := c.path("id")
	if !exists(path) {
		path = c.path(c.Rank)
		var f *os.File
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			return func() { _ = os.Remove(path) }, f.Close() // what is left, the next run names
		}
	}
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = &cupool.ConfigError{Field: "Rank", Value: c.Rank, Reason: path + " is there: another process is this rank, or ranks that were killed have left it; then remove it"}
	}
	return nil, err
}

// read waits for what rank 0 writes, or until that gives up.
func (c Config) read(ctx context.Context) ([]byte, error) {
	back, err := c.claim()
	if err != nil {
		return nil, err
	}
	defer back()
	r, other, gone := newRoll(c.Size), 0, false
	err = c.until(ctx, func() bool {
		c.look(r, 0) // its file is there until all have read
		other = (other + 1) % c.Size
		c.look(r, other) // one at a time, as all may be many
		gone = r.seen[0] && !r.here[0]
		return gone || exists(c.path("id"))
	})
	if gone {
		err = errors.New("rank 0 has given up")
	}
	if err != nil {
		return nil, c.notAll(r, err)
	}
	return readShort(c.path("id"))
}

// readShort reads a file of what rank 0 may give. Who can write into the folder may have put
// anything there, such as a pipe.
func readShort(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > most:
		return nil, fmt.Errorf("%s is not what rank 0 has written: it is %v and has %d bytes, more than %d or no file", path, info.Mode(), info.Size(), most)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// writeNew writes a file that is not there yet, not even as a link to another one.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// write waits until all ranks have come, gives them the value, and waits until they
// have it.
func (c Config) write(ctx context.Context, value []byte) error {
	back, err := c.claim()
	if err != nil {
		return err
	}
	defer back()
	r := newRoll(c.Size)
	if err := c.until(ctx, func() bool { c.lookAtAll(r); return r.full() }); err != nil {
		return c.notAll(r, err)
	}
	part := c.path("part") // so that nobody sees a part of it
	if err := writeNew(part, value); err != nil {
		return err
	}
	if err := os.Rename(part, c.path("id")); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	defer os.Remove(c.path("id"))
	if err := c.until(ctx, func() bool { c.lookAtAll(r); return len(r.others()) == 0 }); err != nil {
		return fmt.Errorf("ranks %s of %d have not read %s: %w: %w", first(r.others()), c.Size, c.path("id"), dist.ErrRank, err)
	}
	return nil
}

// notAll is the error of a meeting to which some have not come, with the files
// that are there, as a rank may be of a group of another size.
func (c Config) notAll(r roll, cause error) error {
	c.lookAtAll(r)
	return missing(r.absent(), fmt.Errorf("%w; in the folder are %s", cause, printable(strings.Join(c.there(), ", "))))
}

// there are files of the folder that may be this communicator's: it looks at some thousand.
func (c Config) there() (names []string) {
	f, err := os.Open(c.Folder)
	if err != nil {
		return nil
	}
	defer f.Close()
	all, _ := f.Readdirnames(1 << 12) // what there is of them
	for _, name := range all {
		if strings.HasPrefix(name, c.Name+".") {
			names = append(names, filepath.Join(c.Folder, name))
		}
	}
	slices.Sort(names)
	return names
}

// until looks until what is waited for is there. It fails with the cause of ctx.
func (c Config) until(ctx context.Context, there func() bool) error {
	for !there() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookEvery):
		}
	}
	return nil
}
