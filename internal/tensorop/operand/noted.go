package operand

import (
	"weak"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/device"
)

// Noted is a list of blocks of the type B. It is not safe from several
// goroutines. The zero value is empty.
type Noted[B any] struct {
	blocks []Made[B]
	limit  int // at which Add asks for Prune, where it is more than notedLimit
}

const notedLimit = 1 << 10

// Made is a block with the tensor that an engine made in it, if any. It does not
// keep the tensor.
type Made[B any] struct {
	Block B
	t     weak.Pointer[tensor.Dense]
}

// MadeIn returns a block with the tensor that was made in it, which may be nil.
func MadeIn[B any](b B, d *tensor.Dense) Made[B] { return Made[B]{b, weak.Make(d)} }

// Disarm leaves the tensor without data, unless it was given other data since
// than the n bytes at p.
func (m Made[B]) Disarm(p device.Ptr, n int64) {
	d := m.t.Value()
	if d == nil {
		return
	}
	if q, size := Extent(d); q == p && size == n {
		Disarm(d)
	}
}

// Add adds a block. It reports whether the list has grown so much that Prune is
// to be called.
func (l *Noted[B]) Add(m Made[B]) (full bool) {
	l.blocks = append(l.blocks, m)
	return len(l.blocks) >= max(notedLimit, l.limit)
}

// Prune drops the blocks that are not live.
func (l *Noted[B]) Prune(live func(B) bool) {
	kept := l.blocks[:0]
	for _, m := range l.blocks {
		if live(m.Block) {
			kept = append(kept, m)
		}
	}
	l.blocks = kept
	l.limit = 2 * len(kept)
}

// Move adds the blocks of another list, which is empty afterwards.
func (l *Noted[B]) Move(from *Noted[B]) { l.blocks = append(l.blocks, from.Take()...) }

// Take removes all blocks and returns them.
func (l *Noted[B]) Take() (all []Made[B]) {
	all, l.blocks = l.blocks, nil
	return all
}

// Len returns the number of blocks.
func (l *Noted[B]) Len() int { return len(l.blocks) }
