// Package refs counts the holders of a pool's blocks. Views, reshaped tensors
// and shallow clones lie in the block of the tensor that they come from and have
// no tie to it, so a block is known by its address, whichever tensor leads there.
package refs

import (
	"errors"
	"maps"

	"github.com/cupool/cupool"
)

// Blocks are the blocks that have holders, and how many. The zero value has
// none; it needs its Allocator set. One goroutine at a time may use it.
type Blocks struct {
	Allocator cupool.Allocator
	Err       error // of the first free that failed, but for blocks that were free already

	refs map[cupool.Ptr]*ref // some without holders: most addresses come again
	gone int                 // how many have none
}

type ref struct {
	block    cupool.Block
	n        int32
	borrowed bool // not to be freed or overwritten
	foreign  bool // somebody else's
}

// mostGone is how many addresses without holders are kept, at least.
const mostGone = 1 << 10

// Hold takes a reference to the block that an address lies in and returns the
// block's address, or 0 where the pool has no such block. The first reference
// decides whether the block is borrowed: that of somebody else, who frees it.
func (r *Blocks) Hold(at cupool.Ptr, borrowed bool) cupool.Ptr {
	b, err := r.Allocator.Lookup(at)
	if err != nil { // in Go's heap
		return 0
	}
	if x := r.held(b.Ptr()); x != nil {
		x.n++
	} else {
		r.set(ref{block: b, n: 1, borrowed: borrowed, foreign: borrowed})
	}
	return b.Ptr()
}

// Own takes the first reference to a new block.
func (r *Blocks) Own(b cupool.Block) cupool.Ptr {
	if b.IsEmpty() {
		return 0
	}
	r.set(ref{block: b, n: 1})
	return b.Ptr()
}

// held returns the references to the block at an address, or nil where there are none.
func (r *Blocks) held(p cupool.Ptr) *ref {
	if p == 0 {
		return nil
	}
	if x := r.refs[p]; x != nil && x.n > 0 {
		return x
	}
	return nil
}

func (r *Blocks) set(to ref) {
	x := r.refs[to.block.Ptr()]
	switch {
	case x == nil:
		if r.refs == nil {
			r.refs = make(map[cupool.Ptr]*ref)
		}
		x = new(ref)
		r.refs[to.block.Ptr()] = x
	case x.n == 0:
		r.gone--
	}
	*x = to
}

// Again takes one more reference to a block that has one; 0 is no block.
func (r *Blocks) Again(p cupool.Ptr) {
	if x := r.held(p); x != nil {
		x.n++
	}
}

// Drop gives a reference back, and the block with the last one.
func (r *Blocks) Drop(p cupool.Ptr) {
	x := r.held(p)
	if x == nil {
		return
	}
	if x.n--; x.n > 0 {
		return
	}
	if r.gone++; r.gone > max(mostGone, len(r.refs)/2) {
		maps.DeleteFunc(r.refs, func(_ cupool.Ptr, x *ref) bool { return x.n == 0 })
		r.gone = 0
	}
	if x.borrowed {
		return
	}
	if err := r.Allocator.Free(x.block); r.Err == nil && !errors.Is(err, cupool.ErrDoubleFree) { // then a scope of the program's has freed it
		r.Err = err
	}
}

// Sole reports whether a block has one holder, is not borrowed and has a size
// in bytes: whether a tensor of that size has all of it for itself.
func (r *Blocks) Sole(p cupool.Ptr, size int64) bool {
	x := r.held(p)
	return x != nil && x.n == 1 && !x.borrowed && size == x.block.Size()
}

// Foreign reports whether a block is somebody else's.
func (r *Blocks) Foreign(p cupool.Ptr) bool {
	x := r.held(p)
	return x != nil && x.foreign
}

// Borrow makes all blocks borrowed. They are nobody else's for that.
func (r *Blocks) Borrow() {
	for _, x := range r.refs {
		x.borrowed = true
	}
}

// Clone returns the same references, to be counted apart from these.
func (r *Blocks) Clone() Blocks {
	c := Blocks{Allocator: r.Allocator, Err: r.Err}
	for _, x := range r.refs {
		if x.n > 0 {
			c.set(*x)
		}
	}
	return c
}
