package arena

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/sizeclass"
)

// Mark is a point in the life of an Arena that Release goes back to. Marks nest.
type Mark struct {
	arena *Arena
	depth int
	gen   uint64
}

// point is the state of an Arena at a Mark.
type point struct {
	gen          uint64
	off          int64
	blocks, over int
}

// Mark returns a point that Release goes back to.
func (r *Arena) Mark() Mark {
	if r.isNone() {
		return Mark{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gen++ // marks and blocks are counted together
	r.marks = append(r.marks, point{gen: r.gen, off: r.off, blocks: len(r.blocks), over: len(r.over)})
	return Mark{arena: r, depth: len(r.marks) - 1, gen: r.gen}
}

// Release gives back all blocks that were allocated since the mark. It ends the
// mark and those that were made since. It does not wait on the host. It fails
// with a *cupool.BlockError: ErrForeignPointer for a mark of another arena,
// ErrUseAfterFree for one that was released before or came before a Reset, or
// ErrClosed. Where a stream cannot be ordered it fails with the device's error.
// A call that fails so has changed nothing. What the allocator says about blocks that
// overflowed comes when all else is done.
func (r *Arena) Release(m Mark) error {
	if err := r.made("release of a mark"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	const op = "release of a mark"
	switch {
	case m.arena != r:
		return r.fail(op, r.memory.Ptr(), -1, cupool.ErrForeignPointer, "the mark is of another arena")
	case r.closed:
		return r.closedError(op)
	case m.depth >= len(r.marks) || r.marks[m.depth].gen != m.gen:
		return r.fail(op, r.memory.Ptr(), -1, cupool.ErrUseAfterFree, "the mark, or one around it, was released before")
	}
	return r.goBackLocked(r.marks[m.depth], m.depth)
}

// Reset gives all blocks of the arena back, and ends all marks. It does not
// wait on the host. It fails with ErrClosed or, where a stream cannot be
// ordered, with the device's error, and then has changed nothing. What the allocator
// says about blocks that overflowed comes when all else is done.
func (r *Arena) Reset() error {
	if err := r.made("reset"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.closedError("reset")
	}
	if err := r.goBackLocked(point{}, 0); err != nil {
		return err
	}
	r.stats.Resets++
	return nil
}

// goBackLocked orders the arena's stream after all streams that may use the
// memory, and then forgets the blocks that came after a point, and the marks from depth on.
func (r *Arena) goBackLocked(to point, depth int) error {
	r.users = slices.DeleteFunc(r.users, (*cupool.Stream).Closed) // Close has waited for their work
	for _, u := range r.users {
		if err := waitFor(r.s, u); err != nil && !u.Closed() {
			return fmt.Errorf("cupool: ordering %v after %v: %w", r.s.Handle(), u.Handle(), err)
		}
	}
	r.marks = r.marks[:depth]
	// Other streams may still use the blocks that stay below a mark, so the
	// next Reset waits for them again.
	if r.ordered = r.ordered[:0]; to.off == 0 {
		r.users = r.users[:0]
	}
	for _, b := range r.blocks[to.blocks:] {
		if !b.freed {
			r.stats.Blocks--
		}
	}
	err := r.dropLocked(to.over)
	r.blocks, r.off = r.blocks[:to.blocks], to.off
	r.countLocked()
	return err
}

// dropLocked gives the blocks that overflowed back, from the n-th on. A block
// that the program freed through the allocator itself is passed over.
func (r *Arena) dropLocked(n int) error {
	var errs []error
	for _, b := range r.over[n:] {
		r.spilled -= sizeclass.Round(b.from.Size())
		if b.freed {
			continue
		}
		if err := r.a.Free(b.from); err != nil && !errors.Is(err, cupool.ErrDoubleFree) {
			errs = append(errs, err)
		}
		r.overflow -= sizeclass.Round(b.from.Size())
		r.stats.Blocks--
	}
	r.over = r.over[:n]
	return errors.Join(errs...)
}

// Close gives the arena's memory back to the allocator. Work that was submitted
// before may go on using it. Later calls fail with ErrClosed.
func (r *Arena) Close() error {
	if err := r.made("close"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.closedError("close")
	}
	r.closed = true
	errs := []error{r.dropLocked(0)}
	for _, u := range r.users {
		errs = append(errs, r.a.RecordStream(r.memory, u))
	}
	r.blocks, r.off = nil, 0
	r.countLocked()
	r.stats.Blocks = 0
	return errors.Join(append(errs, r.a.Free(r.memory))...)
}
