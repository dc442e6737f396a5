// Package refs counts the holders of a pool's blocks. Views, reshaped tensors
// and shallow clones lie in the block of the tensor that they come from and have
// no tie to it, so a block is known by its address, whichever tensor leads there.
package refs

import (
	"maps"

	"github.com/cupool/cupool"
)

// Blocks are the blocks that have holders, and how many. The zero value has
// none; it needs its Allocator set. One goroutine at a time may use it.
type Blocks struct {
	Allocator cupool.Allocator
	Err       error // of the first free that failed

	refs map[cupool.Ptr]ref
}

type ref struct {
	block    cupool.Block
	n        int32
	borrowed bool // not to be freed or overwritten
	foreign  bool // somebody else's
}

// Hold takes a reference to the block that an address lies in and returns the
// block's address, or 0 where the pool has no such block. The first reference
// decides whether the block is borrowed: that of somebody else, who frees it.
func (r *Blocks) Hold(at cupool.Ptr, borrowed bool) cupool.Ptr {
	b, err := r.Allocator.Lookup(at)
	if err != nil { // in Go's heap
		return 0
	}
	x, ok := r.refs[b.Ptr()]
	if !ok {
		x = ref{block: b, borrowed: borrowed, foreign: borrowed}
	}
	x.n++
	r.set(b.Ptr(), x)
	return b.Ptr()
}

// Own takes the first reference to a new block.
func (r *Blocks) Own(b cupool.Block) cupool.Ptr {
	if b.IsEmpty() {
		return 0
	}
	r.set(b.Ptr(), ref{block: b, n: 1})
	return b.Ptr()
}

func (r *Blocks) set(p cupool.Ptr, x ref) {
	if r.refs == nil {
		r.refs = make(map[cupool.Ptr]ref)
	}
	r.refs[p] = x
}

// Again takes one more reference to a block that has one; 0 is no block.
func (r *Blocks) Again(p cupool.Ptr) {
	if p != 0 {
		x := r.refs[p]
		x.n++
		r.refs[p] = x
	}
}

// Drop gives a reference back, and the block with the last one.
func (r *Blocks) Drop(p cupool.Ptr) {
	if p == 0 {
		return
	}
	x := r.refs[p]
	if x.n--; x.n > 0 {
		r.refs[p] = x
		return
	}
	delete(r.refs, p)
	if x.borrowed {
		return
	}
	if err := r.Allocator.Free(x.block); r.Err == nil {
		r.Err = err
	}
}

// Sole reports whether a block has one holder, is not borrowed and has a size
// in bytes: whether a tensor of that size has all of it for itself.
func (r *Blocks) Sole(p cupool.Ptr, size int64) bool {
	x := r.refs[p]
	return p != 0 && x.n == 1 && !x.borrowed && size == x.block.Size()
}

// Foreign reports whether a block is somebody else's.
func (r *Blocks) Foreign(p cupool.Ptr) bool { return r.refs[p].foreign }

// Borrow makes all blocks borrowed. They are nobody else's for that.
func (r *Blocks) Borrow() {
	for p, x := range r.refs {
		x.borrowed = true
		r.refs[p] = x
	}
}

// Clone returns the same references, to be counted apart from these.
func (r *Blocks) Clone() Blocks {
	return Blocks{Allocator: r.Allocator, Err: r.Err, refs: maps.Clone(r.refs)}
}
