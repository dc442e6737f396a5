package main

// #include "internal.h"
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/poolaccess"
)

// poolID is a cupool_pool_id. The zero value is the device's own pool.
type poolID struct{ first, second uint64 }

// everyPool is CUPOOL_ALL.
var everyPool = poolID{^uint64(0), ^uint64(0)}

// namedPools is the first word of the ids that cupool_pool_named gives.
const namedPools = 0x6e616d6564 // "named"

func idOf(id C.cupool_pool_id) poolID { return poolID{uint64(id.first), uint64(id.second)} }

func (id poolID) c() C.cupool_pool_id {
	return C.cupool_pool_id{first: C.uint64_t(id.first), second: C.uint64_t(id.second)}
}

func (id poolID) String() string { return fmt.Sprintf("pool (%d, %d)", id.first, id.second) }

// pool is a private pool. What changes and has no type of sync/atomic is guarded by gpu.mu.
type pool struct {
	id    poolID
	set   poolSettings // of which the flags change
	uses  int
	base  account // what its sums began with anew
	of    *gpu
	made  atomic.Pointer[cupool.Pool] // nil: nothing was allocated yet
	taken sync.Map                    // streams of segments of the program, by address
}

// poolSettings are what cupool_pool_config says.
type poolSettings struct {
	name  string
	flags C.unsigned
	limit int64
	own   *C.cupool_pool_config // the program's functions; nil: none
}

func settingsOfPool(c *C.cupool_pool_config) (s poolSettings) {
	if c == nil {
		return s
	}
	if c.name != nil {
		s.name = C.GoString(c.name)
	}
	s.flags, s.limit = c.flags, int64(c.limit)
	if c.alloc != nil || c.free != nil {
		own := *c
		own.name = nil
		s.own = &own
	}
	return s
}

func (s *poolSettings) check() error {
	const all = C.CUPOOL_POOL_NO_SPLIT | C.CUPOOL_POOL_USE_ON_OOM | C.CUPOOL_POOL_ISOLATED | C.CUPOOL_POOL_SEGMENTS
	switch {
	case s.flags&^all != 0:
		return faultf(C.CUPOOL_ERROR_CONFIG, "unknown flags %#x of a pool", uint(s.flags&^all))
	case s.flags&C.CUPOOL_POOL_ISOLATED != 0 && s.flags&C.CUPOOL_POOL_USE_ON_OOM != 0:
		return faultf(C.CUPOOL_ERROR_CONFIG, "an isolated pool does not lend its memory: CUPOOL_POOL_ISOLATED and CUPOOL_POOL_USE_ON_OOM exclude each other")
	case s.own != nil && (s.own.alloc == nil || s.own.free == nil):
		return faultf(C.CUPOOL_ERROR_CONFIG, "the functions alloc and free of a pool belong together")
	case s.limit < 0:
		return faultf(C.CUPOOL_ERROR_CONFIG, "the limit of a pool is larger than any device")
	}
	return nil
}

// config returns what the pool is made with. Its functions may be called with locks of the
// allocator held.
func (p *pool) config() cupool.PoolConfig {
	s := &p.set
	cfg := cupool.PoolConfig{
		Name: s.name, Limit: s.limit, NoSplit: s.flags&C.CUPOOL_POOL_NO_SPLIT != 0,
		Isolated: s.flags&C.CUPOOL_POOL_ISOLATED != 0, UseOnOOM: s.flags&C.CUPOOL_POOL_USE_ON_OOM != 0,
	}
	d := p.of.driver
	switch {
	case s.own != nil:
		cfg.Alloc, cfg.Free = p.allocByProgram, p.freeByProgram
	case s.flags&(C.CUPOOL_POOL_SEGMENTS|C.CUPOOL_POOL_NO_SPLIT) != 0:
		cfg.Alloc = func(size int64) (cupool.Ptr, error) { return d.segment(size, p.id) }
		cfg.Free = func(at cupool.Ptr, _ int64) error { return d.free(at, p.id) }
	}
	return cfg
}

func (p *pool) allocByProgram(size int64) (cupool.Ptr, error) {
	stream := C.cupool_current_stream()
	at := cupool.Ptr(C.cupool_call_alloc(p.set.own, C.size_t(size), C.int(p.of.ordinal), stream))
	if at == 0 {
		return 0, fmt.Errorf("cupool: %v: the program's function has no %d bytes: %w", p.id, size, device.ErrOutOfMemory)
	}
	p.taken.Store(at, stream)
	p.of.tell(C.CUPOOL_SEGMENT_ALLOC, p.id, at, size, stream)
	return at, nil
}

func (p *pool) freeByProgram(at cupool.Ptr, size int64) error {
	stream := C.uintptr_t(0)
	if s, ok := p.taken.LoadAndDelete(at); ok {
		stream = s.(C.uintptr_t)
	}
	p.of.tell(C.CUPOOL_SEGMENT_FREE, p.id, at, size, stream)
	C.cupool_call_free(p.set.own, C.uintptr_t(at), C.size_t(size), C.int(p.of.ordinal), stream)
	return nil
}

func (g *gpu) missing(id poolID) error {
	return faultf(C.CUPOOL_ERROR_NOT_FOUND, "device %d has no %v: it was not made, or it was released", g.ordinal, id)
}

// find returns a private pool.
func (g *gpu) find(id poolID) (*pool, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if p := g.pools[id]; p != nil {
		return p, nil
	}
	return nil, g.missing(id)
}

// private returns the pool to allocate from, of a private pool or of the device.
func (g *gpu) private(id poolID) (*cupool.Pool, error) {
	if id == (poolID{}) {
		return g.root, nil
	}
	p, err := g.find(id)
	if err != nil {
		return nil, err
	}
	if made := p.made.Load(); made != nil {
		return made, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if made := p.made.Load(); made != nil {
		return made, nil
	}
	if g.pools[id] != p {
		return nil, g.missing(id)
	}
	cfg := p.config()
	if cfg.Name == "" {
		cfg.Name = id.String()
	}
	if slices.ContainsFunc(g.root.Pools(), func(o *cupool.Pool) bool { return o.Name() == cfg.Name }) {
		g.names++
		cfg.Name = fmt.Sprintf("%s #%d", cfg.Name, g.names)
	}
	made, err := g.root.NewPool(cfg)
	if err == nil {
		p.made.Store(made)
	}
	return made, err
}

// create makes a private pool, or adds to the use count of one that is there.
func (g *gpu) create(id poolID, set poolSettings) error {
	if id == (poolID{}) || id == everyPool {
		return faultf(C.CUPOOL_ERROR_INVALID, "%v is no private pool", id)
	}
	if err := set.check(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.createLocked(id, set)
	return nil
}

func (g *gpu) createLocked(id poolID, set poolSettings) {
	if p := g.pools[id]; p != nil {
		p.uses++
		return
	}
	g.pools[id] = &pool{id: id, set: set, uses: 1, of: g}
}

// release takes from the use count, and retires the pool at 0. It may be called by destructors. So it
// waits for no work, and what the device says now it says to a later call.
func (g *gpu) release(id poolID) error {
	g.mu.Lock()
	p := g.pools[id]
	if p == nil {
		g.mu.Unlock()
		return g.missing(id)
	}
	if p.uses--; p.uses > 0 {
		g.mu.Unlock()
		return nil
	}
	delete(g.pools, id)
	for name, of := range g.named {
		if of == id {
			delete(g.named, name)
		}
	}
	made := p.made.Load()
	if made != nil {
		g.retired = append(g.retired, p)
	}
	g.mu.Unlock()
	if made == nil {
		return nil
	}
	_ = made.Retire()
	g.sweep()
	return nil
}

// sweep forgets the retired pools that are gone. What they counted stays counted.
func (g *gpu) sweep() {
	g.mu.Lock()
	defer g.mu.Unlock()
	gone := func(p *pool) bool { // not one that another goroutine tries to close
		made := p.made.Load()
		return errors.Is(made.Err(), cupool.ErrClosed) && made.Stats().All.ReservedBytes.Current == 0
	}
	if !slices.ContainsFunc(g.retired, gone) {
		return
	}
	peaks := g.totalLocked()
	for i, s := range peaks.stats() {
		g.books.past.stats()[i].peak = s.peak
	}
	g.retired = slices.DeleteFunc(g.retired, func(p *pool) bool {
		if !gone(p) {
			return false
		}
		made := p.made.Load()
		g.books.gone(made)
		g.labeled.Range(func(k, _ any) bool {
			if k.(labelKey).of == made {
				g.labeled.Delete(k)
			}
			return true
		})
		return true
	})
}

// members returns the pools of the device that have memory, with their ids, the device's own
// first.
func (g *gpu) members() []member {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.membersLocked()
}

func (g *gpu) membersLocked() (list []member) {
	list = append(list, member{made: g.root})
	for _, p := range g.pools {
		if made := p.made.Load(); made != nil {
			list = append(list, member{p.id, p, made, p.set.flags&C.CUPOOL_POOL_ISOLATED != 0})
		}
	}
	for _, p := range g.retired {
		list = append(list, member{p.id, p, p.made.Load(), false})
	}
	return list
}

// member is a pool with its id.
type member struct {
	id   poolID
	of   *pool // nil: the device's own
	made *cupool.Pool
	kept bool // captured work goes on using its addresses
}

// unlessGone drops the error of a call that came too late: a retired pool goes with its last block.
func (m member) unlessGone(err error) error {
	if m.of != nil && errors.Is(err, cupool.ErrClosed) {
		return nil
	}
	return err
}

// chosen returns the pools that an id means. Pools of which nothing was allocated are none.
func (g *gpu) chosen(id poolID) (list []member, err error) {
	g.sweep()
	switch id {
	case everyPool:
		return g.members(), nil
	case poolID{}:
		return []member{{made: g.root}}, nil
	}
	for _, m := range g.members() {
		if m.id == id {
			list = append(list, m)
		}
	}
	if list == nil {
		_, err = g.find(id)
	}
	return list, err
}

// idOf returns the id of a pool.
func (g *gpu) idOf(made *cupool.Pool) poolID {
	for _, m := range g.members() {
		if m.made == made {
			return m.id
		}
	}
	return poolID{}
}

//export cupoolGoPoolCreate
func cupoolGoPoolCreate(t *C.thread, ordinal C.int, id C.cupool_pool_id, c *C.cupool_pool_config) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error { return g.create(idOf(id), settingsOfPool(c)) })
}

//export cupoolGoPoolNamed
func cupoolGoPoolNamed(t *C.thread, ordinal C.int, name *C.char, c *C.cupool_pool_config, id *C.cupool_pool_id) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		set := settingsOfPool(c)
		set.name = C.GoString(name)
		if set.name == "" {
			return faultf(C.CUPOOL_ERROR_INVALID, "the name of a pool is empty")
		}
		if err := set.check(); err != nil {
			return err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		of, ok := g.named[set.name]
		if !ok {
			g.names++
			of = poolID{namedPools, g.names}
			g.named[set.name] = of
			g.createLocked(of, set)
		}
		*id = of.c()
		return nil
	})
}

//export cupoolGoPoolSetFlags
func cupoolGoPoolSetFlags(t *C.thread, ordinal C.int, id C.cupool_pool_id, flags C.unsigned) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		p, err := g.find(idOf(id))
		if err != nil {
			return err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		return p.addFlags(flags)
	})
}

// addFlags adds flags to a pool's, with gpu.mu held. Of the two that exclude each other the new
// one stays.
func (p *pool) addFlags(flags C.unsigned) error {
	set := p.set
	set.flags = flags
	if err := set.check(); err != nil {
		return err
	}
	const lending = C.CUPOOL_POOL_ISOLATED | C.CUPOOL_POOL_USE_ON_OOM
	set.flags |= p.set.flags
	if flags&lending != 0 {
		set.flags = set.flags&^lending | flags
	}
	if made := p.made.Load(); made != nil {
		is := func(flag C.unsigned) bool { return set.flags&flag != 0 }
		isVirtual := made.Config().Backing == cupool.BackingVMM
		if isVirtual && is(C.CUPOOL_POOL_SEGMENTS) ||
			!poolaccess.Of(made).SetFlags(is(C.CUPOOL_POOL_ISOLATED), is(C.CUPOOL_POOL_USE_ON_OOM), is(C.CUPOOL_POOL_NO_SPLIT)) {
			return faultf(C.CUPOOL_ERROR_BUSY, "%v has virtual memory already: it has no segments", p.id)
		}
	}
	p.set.flags = set.flags
	return nil
}

//export cupoolGoPoolRelease
func cupoolGoPoolRelease(t *C.thread, ordinal C.int, id C.cupool_pool_id) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error { return g.release(idOf(id)) })
}

//export cupoolGoPoolUseCount
func cupoolGoPoolUseCount(t *C.thread, ordinal C.int, id C.cupool_pool_id, count *C.int) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		g.mu.RLock()
		defer g.mu.RUnlock()
		*count = 0
		if p := g.pools[idOf(id)]; p != nil {
			*count = C.int(p.uses)
		}
		return nil
	})
}
