package meet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
)

// In a folder each rank makes a file NAME.RANK, and when all have, rank 0 writes
// NAME.id. A rank that has read it takes its own file away, and rank 0 that one
// at the end. Whatever is there too early was left by ranks that were killed here,
// or another process has the same number: nobody goes on then.

// lookEvery is how often a rank looks for files.
const lookEvery = 10 * time.Millisecond

func (c Config) path(of string) string { return filepath.Join(c.Folder, c.Name+"."+of) }

// claim makes this rank's file, which its result takes away.
func (c Config) claim() (back func(), err error) {
	if _, err := os.Stat(c.path("id")); err == nil {
		return nil, c.taken(c.path("id"))
	}
	path := c.path(strconv.Itoa(c.Rank))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, c.taken(path)
	}
	if err != nil {
		return nil, err
	}
	back = func() { _ = os.Remove(path) } // what is left, the next run names
	if err := errors.Join(json.NewEncoder(f).Encode(c.ask()), f.Close()); err != nil {
		back()
		return nil, err
	}
	return back, nil
}

func (c Config) taken(path string) error {
	return &cupool.ConfigError{Field: "Rank", Value: c.Rank, Reason: fmt.Sprintf("%s is there: another process is this rank, or ranks that were killed have left it; then remove it", path)}
}

// read reads JSON. It fails where another process has not written it yet.
func read(path string, v any) error {
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	return err
}

// find waits for what rank 0 writes.
func (c Config) find(ctx context.Context) ([]byte, error) {
	back, err := c.claim()
	if err != nil {
		return nil, err
	}
	defer back()
	var r reply
	for read(c.path("id"), &r) != nil {
		if !pause(ctx) {
			return nil, fmt.Errorf("waiting for rank 0 in %s: %w: %w", c.Folder, dist.ErrRank, context.Cause(ctx))
		}
	}
	return c.open(r)
}

// hand waits until all ranks have come, and gives them the value, or tells those
// who are there that others are not.
func (c Config) hand(ctx context.Context, value []byte) error {
	back, err := c.claim()
	if err != nil {
		return err
	}
	defer back()
	d, answer := newDesk(c), reply{Value: value}
	if err = c.gather(ctx, d); err != nil {
		answer = reply{Reason: err.Error()}
	}
	if failed := write(c.path("id"), answer); failed != nil {
		return errors.Join(err, failed)
	}
	defer os.Remove(c.path("id"))
	if err != nil { // those who are there need a moment
		const moment = 2 * time.Second
		short, cancel := context.WithTimeout(context.Background(), moment)
		defer cancel()
		_ = c.handed(short, d)
		return err
	}
	return c.handed(ctx, d)
}

// gather waits until all ranks have come. It fails for all of them where one cannot
// be a rank, as what rank 0 writes is for all.
func (c Config) gather(ctx context.Context, d *desk) error {
	for {
		for rank := 1; rank < d.Size; rank++ {
			var a ask
			switch err := read(c.path(strconv.Itoa(rank)), &a); {
			case err != nil:
				d.leave(rank) // where it was there, it has given up
			case d.from[rank] == "":
				if _, ok := d.come(a); !ok { // it waits like the others
					d.from[rank] = a.From
					d.here++
				}
			}
		}
		switch {
		case d.here == d.Size && d.refused != "":
			return fmt.Errorf("%w: refused was %s", dist.ErrRank, d.refused)
		case d.here == d.Size:
			return nil
		}
		if !pause(ctx) {
			return d.missing(context.Cause(ctx))
		}
	}
}

// handed waits until all who came have taken their files away.
func (c Config) handed(ctx context.Context, d *desk) error {
	for {
		for rank := 1; rank < d.Size; rank++ {
			if _, err := os.Stat(c.path(strconv.Itoa(rank))); errors.Is(err, fs.ErrNotExist) {
				d.leave(rank)
			}
		}
		if d.here == 1 {
			return nil
		}
		if !pause(ctx) {
			return fmt.Errorf("not all ranks have read %s: %w: %w", c.path("id"), dist.ErrRank, context.Cause(ctx))
		}
	}
}

// write writes a file of which nobody sees a part.
func write(path string, v any) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-*") // for the user alone
	if err != nil {
		return err
	}
	err = errors.Join(json.NewEncoder(f).Encode(v), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// pause waits before another look, and reports whether ctx lives.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(lookEvery):
		return true
	}
}
