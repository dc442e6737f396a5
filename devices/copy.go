package devices

import (
	"errors"
	"fmt"

	"github.com/cupool/cupool"
)

// Copy copies n bytes from src to dst, addresses inside live blocks of any two
// pools of the Set, with peer access or without. The copy runs on the stream to
// (nil: the default stream of dst's pool). It comes after everything that from
// (nil: that of src's pool) has been given, and what from is given later comes
// after it. It does not wait for the copy. Both blocks may be freed at once.
//
// It fails with a *cupool.BlockError for an address of no live block or a stream
// of no device of the Set, with cupool.ErrInvalidRange for bytes outside a block,
// with cupool.ErrClosed for a closed stream, with cupool.ErrNotSupported for one that
// is captured and for devices of different kinds, which cannot wait for each other, or
// with what the devices say. When it fails, no copy is under way.
func (s *Set) Copy(dst, src cupool.Ptr, n int64, to, from *cupool.Stream) error {
	if err := s.made("copy"); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	d, err := s.side(dst, n, &to)
	if err != nil {
		return err
	}
	o, err := s.side(src, n, &from)
	if err != nil {
		return err
	}
	if err := order(to, from); err != nil {
		return err
	}
	if err := to.Copy(dst, src, n); err != nil {
		return err
	}
	err = errors.Join(order(from, to), s.record(d.Pool, d.Block, to), s.record(o.Pool, o.Block, from))
	if err != nil { // the program may free the blocks now
		return errors.Join(err, to.Sync())
	}
	return nil
}

// side finds one end of a copy, and its stream.
func (s *Set) side(p cupool.Ptr, n int64, st **cupool.Stream) (Found, error) {
	at, err := s.find("copy", p)
	if err != nil {
		return at, err
	}
	if end := int64(p-at.Block.Ptr()) + n; n < 0 || end > at.Block.Size() || end < 0 {
		return at, fmt.Errorf("cupool: copy: %w: %d bytes at %v are not inside the block %v of %s", cupool.ErrInvalidRange, n, p, at.Block, s.name(at.Pool))
	}
	if *st == nil {
		*st = at.Pool.DefaultStream()
	}
	return at, s.knows("copy", at.Block, *st)
}

// order makes later work of a stream wait for what another has been given.
func order(later, earlier *cupool.Stream) error {
	switch {
	case later == earlier:
		return nil
	case later.Captured(), earlier.Captured(): // else both are of the graph from then on
		return fmt.Errorf("cupool: the order of %v and %v: one of them is captured: %w", later.Handle(), earlier.Handle(), cupool.ErrNotSupported)
	}
	return later.WaitStream(earlier)
}
