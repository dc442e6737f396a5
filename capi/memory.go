package main

// #include "internal.h"
import "C"

import (
	"errors"
	"unsafe"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/snapshot"
)

// pointer is a void* of C.
type pointer = unsafe.Pointer

//export cupoolGoAlloc
func cupoolGoAlloc(t *C.thread, hints C.unsigned, ordinal C.int, id C.cupool_pool_id, size C.size_t, stream C.uintptr_t, p *C.uintptr_t) (st C.cupool_status) {
	defer caught(t, &st)
	g, err := of(ordinal)
	if err != nil {
		return done(t, err)
	}
	from := g.root
	private := idOf(id) != poolID{}
	if private {
		if from, err = g.private(idOf(id)); err != nil {
			return done(t, err)
		}
	}
	var b cupool.Block
	err = g.allocating(t, size, stream, func(s *cupool.Stream) (err error) {
		if t.labels > 0 {
			b, err = g.withLabel(from, C.GoString(t.label[t.labels-1])).Alloc(int64(size), s)
		} else {
			b, err = from.Alloc(int64(size), s)
		}
		return err
	})
	if err != nil {
		return done(t, g.unlessReleased(idOf(id), err))
	}
	*p = C.uintptr_t(b.Ptr())
	if !private {
		if home, owner := g.access.Home(b.Ptr()); home != nil {
			C.cupool_learn(t, hints, ordinal, size, stream, *p, home, C.uint32_t(owner))
		}
	}
	return C.CUPOOL_OK
}

// unlessReleased returns the error of an allocation, or that of a pool that is not there, where the pool was released
// meanwhile.
func (g *gpu) unlessReleased(id poolID, err error) error {
	if id != (poolID{}) && errors.Is(err, cupool.ErrClosed) && !errors.Is(g.root.Err(), cupool.ErrClosed) {
		return g.missing(id)
	}
	return err
}

// labelKey is a label in a pool.
type labelKey struct {
	of    *cupool.Pool
	label string
}

// withLabel returns the allocator of a label.
func (g *gpu) withLabel(of *cupool.Pool, label string) cupool.Allocator {
	k := labelKey{of, label}
	if a, ok := g.labeled.Load(k); ok {
		return a.(cupool.Allocator)
	}
	a, _ := g.labeled.LoadOrStore(k, of.WithLabel(label))
	return a.(cupool.Allocator)
}

// each calls f for every device that is open.
func each(f func(g *gpu)) {
	for i := range gpus {
		if g := gpus[i].Load(); g != nil {
			f(g)
		}
	}
}

// byAddress calls f for the device that has an address: each that is open until one knows it.
func byAddress(p cupool.Ptr, f func(g *gpu) error) error {
	err := errNowhere
	each(func(g *gpu) {
		if errors.Is(err, cupool.ErrForeignPointer) {
			err = f(g)
		}
	})
	return err
}

var errNowhere error = &cupool.BlockError{Op: "look-up", Size: -1, Err: cupool.ErrForeignPointer, Detail: "no pool is open"}

//export cupoolGoFree
func cupoolGoFree(t *C.thread, p C.uintptr_t) (st C.cupool_status) {
	defer caught(t, &st)
	err := byAddress(ptr(p), func(g *gpu) error { return g.free(ptr(p)) })
	if ending(err) {
		return C.CUPOOL_OK
	}
	return done(t, err)
}

// cupoolGoFreeLater frees a block in a goroutine, for who holds locks.
//
//export cupoolGoFreeLater
func cupoolGoFreeLater(p C.uintptr_t) {
	go func() { _ = byAddress(ptr(p), func(g *gpu) error { return g.free(ptr(p)) }) }()
}

func ptr(p C.uintptr_t) cupool.Ptr { return cupool.Ptr(p) }

// put stores an address that is of no memory of Go.
func put[T ~uintptr](at *pointer, p T) { *(*uintptr)(pointer(at)) = uintptr(p) }

//export cupoolGoRecordStream
func cupoolGoRecordStream(t *C.thread, p, stream C.uintptr_t) (st C.cupool_status) {
	defer caught(t, &st)
	return done(t, recordOn(ptr(p), nil, cupool.StreamHandle(stream)))
}

//export cupoolGoRecordStreamOn
func cupoolGoRecordStreamOn(t *C.thread, p C.uintptr_t, ordinal C.int, stream C.uintptr_t) (st C.cupool_status) {
	defer caught(t, &st)
	at, err := of(ordinal)
	if err == nil {
		err = recordOn(ptr(p), at, cupool.StreamHandle(stream))
	}
	return done(t, err)
}

// recordOn notes the use of the block at an address on a stream of a device; nil: of the block's own.
func recordOn(p cupool.Ptr, at *gpu, stream cupool.StreamHandle) error {
	return byAddress(p, func(g *gpu) error {
		b, err := g.root.Lookup(p)
		if err != nil {
			return err
		}
		if at != nil && at != g {
			return g.recordPeer(b, peerStream{at, stream})
		}
		return g.onStream(stream, func(s *cupool.Stream) error { return g.record(b, s) })
	})
}

// record notes the use of a block on a stream. It fails with ErrClosed for a closed one, on which nothing is noted.
func (g *gpu) record(b cupool.Block, s *cupool.Stream) error {
	err := g.root.RecordStream(b, s)
	if err == nil && s != nil && s.Closed() {
		return cupool.ErrClosed
	}
	return err
}

//export cupoolGoForgetStream
func cupoolGoForgetStream(t *C.thread, ordinal C.int, stream C.uintptr_t) (st C.cupool_status) {
	defer caught(t, &st)
	if uint(ordinal) < uint(len(gpus)) && gpus[ordinal].Load() == nil {
		return C.CUPOOL_OK // no pool knows it
	}
	g, err := of(ordinal)
	if err == nil {
		err = g.forget(cupool.StreamHandle(stream))
	}
	return done(t, err)
}

//export cupoolGoWait
func cupoolGoWait(t *C.thread, ordinal C.int) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error { return g.root.Sync() })
}

//export cupoolGoCollect
func cupoolGoCollect(t *C.thread, ordinal C.int, blocks *C.size_t) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		n, err := g.collect()
		set(blocks, int64(n))
		return err
	})
}

// collect frees the blocks of all pools whose wait for other streams is over, and returns their number.
func (g *gpu) collect() (total int, err error) {
	g.freeLate()
	for _, p := range append([]*cupool.Pool{g.root}, g.root.Pools()...) {
		n, e := p.ProcessDeferred()
		total += n
		err = errors.Join(err, unlessCaptured(e))
	}
	return total, err
}

//export cupoolGoReserve
func cupoolGoReserve(t *C.thread, ordinal C.int, size C.size_t, stream C.uintptr_t) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		return g.allocating(t, size, stream, func(s *cupool.Stream) error { return g.root.Reserve(int64(size), s) })
	})
}

//export cupoolGoAllocAt
func cupoolGoAllocAt(t *C.thread, ordinal C.int, id C.cupool_pool_id, p C.uintptr_t, size, requested C.size_t, stream C.uintptr_t) (st C.cupool_status) {
	defer caught(t, &st)
	g, err := of(ordinal)
	if err != nil {
		return done(t, err)
	}
	from, err := g.private(idOf(id))
	if err == nil {
		err = g.onStream(cupool.StreamHandle(stream), func(s *cupool.Stream) error {
			return poolaccess.Of(from).AllocAt(ptr(p), int64(size), int64(requested), s)
		})
		err = g.unlessReleased(idOf(id), err)
	}
	if errors.Is(err, device.ErrInvalidRange) {
		return fail(t, C.CUPOOL_ERROR_OCCUPIED, err.Error())
	}
	return done(t, err)
}

//export cupoolGoBlock
func cupoolGoBlock(t *C.thread, p C.uintptr_t, info *C.cupool_block_info) (st C.cupool_status) {
	defer caught(t, &st)
	var at poolaccess.Place
	var of *gpu
	each(func(g *gpu) {
		if of == nil {
			if found, ok := g.access.At(ptr(p)); ok {
				at, of = found, g
			}
		}
	})
	if of == nil {
		return done(t, &cupool.BlockError{Op: "look-up", Ptr: ptr(p), Size: -1, Err: cupool.ErrForeignPointer, Detail: "no pool has the address"})
	}
	info.device = C.int(of.ordinal)
	info.live = boolean(at.State == snapshot.Live)
	info.pool = of.idOf(at.Pool.(*cupool.Pool)).c()
	put(&info.address, at.Address)
	put(&info.stream, at.Stream)
	put(&info.base, at.Base)
	info.size, info.requested, info.base_size = C.size_t(at.Size), C.size_t(at.Requested), C.size_t(at.BaseSize)
	info.is_virtual = boolean(at.Virtual)
	return C.CUPOOL_OK
}

func boolean(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
