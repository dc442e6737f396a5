package cupool

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// Private pools.
//
// A private pool is a Caching of its own: other segments, other locks, other
// statistics. What it shares with the allocator that it was made of, its
// family, are the device, the streams (pool_streams.go), the limit, and what
// is done when memory runs out: a member that lacks memory has the others give
// back what they cache (ladder.go), and may be lent some.

// family is an allocator that New made, the root, with its private pools.
type family struct {
	root *Caching

	mu      sync.Mutex                 // taken last: to change what follows
	members atomic.Pointer[[]*Caching] // those that are open, the root first
	closed  bool                       // no pools are made any more

	returns  atomic.Uint64 // times that memory went back to the device
	reserved int64         // bytes held from the device by all
	stuck    int64         // of them, what closed pools could not give back
}

func newFamily(root *Caching) *family {
	f := &family{root: root}
	f.members.Store(&[]*Caching{root})
	return f
}

// list returns the allocators that are open, the root first.
func (f *family) list() []*Caching { return *f.members.Load() }

// pools returns the private pools that are open.
func (f *family) pools() []*Caching {
	return slices.DeleteFunc(slices.Clone(f.list()), func(c *Caching) bool { return c == f.root })
}

// byID returns the member that a handle is of, or nil.
func (f *family) byID(id uint32) *Caching {
	for _, c := range f.list() {
		if c.id == id {
			return c
		}
	}
	return nil
}

// at returns the member whose memory or addresses hold p, or nil.
func (f *family) at(p Ptr) *Caching {
	for _, c := range f.list() {
		if _, ok := c.segments.find(p); ok {
			return c
		}
	}
	return nil
}

// other returns the member that a handle is of when that is not c, or nil.
func (c *Caching) other(h Block) *Caching {
	if h.pool() == c.id {
		return nil
	}
	return c.family.byID(h.pool())
}

func (f *family) join(c *Caching) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fmt.Errorf("cupool: new pool on %s: %w", c.driver.Name(), ErrClosed)
	}
	list := append(slices.Clone(f.list()), c)
	f.members.Store(&list)
	c.lost.Store(f.root.lost.Load())
	return nil
}

func (f *family) leave(c *Caching) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.list(), c) {
		f.stuck += c.reserved.Load()
	}
	list := slices.DeleteFunc(slices.Clone(f.list()), func(m *Caching) bool { return m == c })
	f.members.Store(&list)
}

// close ends the making of pools and closes those that there are.
func (f *family) close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	var errs []error
	for _, p := range f.pools() {
		if err := p.Close(); err != nil && !errors.Is(err, ErrClosed) {
			errs = append(errs, fmt.Errorf("cupool: closing %s: %w", p.name, err))
		}
	}
	return errors.Join(errs...)
}

// NewPool makes a private pool of the allocator: a Caching whose blocks share
// no segment with those of others, for the same streams of the same device.
// Close gives all its memory back as a whole, whoever uses it; Retire waits
// until the last block is freed.
//
// Each member of the family, the allocator and its pools, has statistics, Trim,
// Sleep and a limit of its own. All of them together keep to the limit of the
// allocator. Free, FreePtr, RecordStream and Lookup take the blocks of any
// member; NewStream makes streams for all.
//
// A pool of a pool is one of the same allocator, with the pool's settings. It
// fails with a *ConfigError, ErrClosed, or what the device says.
func (c *Caching) NewPool(cfg PoolConfig) (*Caching, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	f := c.family
	p := c.unopened(cfg)
	if err := p.begin(); err != nil {
		return nil, err
	}
	if err := f.join(p); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// unopened returns a pool with all that it has from its own settings and from
// the member that it is made of.
func (c *Caching) unopened(cfg PoolConfig) *Caching {
	f := c.family
	p := &Caching{driver: f.root.driver, cfg: c.cfg, limit: f.root.limit, id: pools.Add(1), regrets: map[regret]int{}, family: f}
	p.name, p.noSplit, p.isolated, p.lends = cfg.Name, cfg.NoSplit, cfg.Isolated, cfg.UseOnOOM
	if p.name == "" {
		p.name = fmt.Sprintf("pool %d", p.id)
	}
	p.cfg.Driver, p.cfg.Limit, p.cfg.Fraction, p.cfg.SoftLimit = p.driver, cfg.Limit, 0, 0
	p.cfg.InitialSize = 0
	p.cfg.Logger = f.root.cfg.Logger.With("pool", p.name)
	if cfg.Limit > 0 {
		p.limit = min(p.limit, cfg.Limit)
	}
	if cfg.Alloc != nil {
		p.driver = &upstream{Driver: f.root.driver, alloc: cfg.Alloc, free: cfg.Free, sizes: map[Ptr]int64{}}
		p.cfg.Driver = p.driver
	}
	if cfg.Alloc != nil || cfg.NoSplit {
		p.cfg.Backing = BackingSegments
	}
	if cfg.NoSplit {
		p.cfg.GrowthFactor = 0 // what is more than a block needs would be lost
	}
	return p
}

// Name returns the name of a private pool, "" for an allocator that New made.
func (c *Caching) Name() string { return c.name }

// Pools lists the private pools of the allocator's family that are not closed,
// in the order in which they were made.
func (c *Caching) Pools() []*Caching { return c.family.pools() }

// Retire ends a private pool gently: nothing can be allocated from it any more,
// while blocks that are live stay valid and are freed as before. What is free
// goes back to the device now, and the rest, with the pool, when the allocator
// next empties its cache, trims or lacks memory after the last block was freed.
// It fails with ErrClosed, for an allocator that New made with ErrNotSupported,
// or with what the device says.
func (c *Caching) Retire() error {
	if c == c.family.root {
		return fmt.Errorf("cupool: retire: only private pools can be; use Close: %w", ErrNotSupported)
	}
	if c.closed.Load() || !c.retired.CompareAndSwap(false, true) {
		return fmt.Errorf("cupool: retire %s: %w", c.name, ErrClosed)
	}
	unlock := c.lockAll()
	for _, s := range *c.streams.Load() {
		s.unhomeAllLocked() // a block with a home comes and goes without asking
	}
	unlock()
	if err := c.fade(); !errors.Is(err, ErrClosed) {
		return err
	}
	return nil // the next to lack memory was faster
}

// fade gives back what a retired pool has no use for, and closes it when that
// is all. While it sleeps it holds nothing that could go.
func (c *Caching) fade() error {
	err := c.EmptyCache()
	if errors.Is(err, ErrAsleep) {
		err = nil
	}
	if st := c.Stats(); err != nil || st.All.Active.Current > 0 {
		return err
	}
	return c.Close()
}

// fadePools is fade for all retired pools, when the root is asked. Another
// goroutine may be about to close one.
func (c *Caching) fadePools() error {
	if c != c.family.root {
		return nil
	}
	var errs []error
	for _, p := range c.family.pools() {
		if p.retired.Load() {
			if err := p.fade(); !errors.Is(err, ErrClosed) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// reserve counts bytes against the limits of the member and of the family. A
// request that is refused never counts, not even for a moment, so that no
// other is refused for its sake.
func (c *Caching) reserve(size int64) error {
	f := c.family
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := c.reserved.Load(); size > c.limit-now {
		return fmt.Errorf("%w: %d more bytes would exceed the limit of %d with %d reserved", ErrOutOfMemory, size, c.limit, now)
	}
	if size > f.root.limit-f.reserved {
		return fmt.Errorf("%w: %d more bytes would exceed the limit of %d with %d reserved by the allocator and its pools", ErrOutOfMemory, size, f.root.limit, f.reserved)
	}
	f.reserved += size
	c.reserved.Add(size)
	return nil
}

// unreserve is the opposite of reserve.
func (c *Caching) unreserve(size int64) {
	c.family.mu.Lock()
	defer c.family.mu.Unlock()
	c.family.reserved -= size
	c.reserved.Add(-size)
}

// check verifies C6.
func (f *family) check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := f.stuck
	for _, m := range f.list() {
		sum += m.reserved.Load()
	}
	if sum != f.reserved {
		return fmt.Errorf("C6: %d bytes are counted against the family's limit, its members hold %d", f.reserved, sum)
	}
	return nil
}

// room returns the bytes that the limits leave, math.MaxInt64 without one, and
// what the other members of the family hold.
func (c *Caching) room() (room, others int64) {
	f := c.family
	f.mu.Lock()
	defer f.mu.Unlock()
	room = math.MaxInt64
	if own := c.reserved.Load(); c.limit != math.MaxInt64 {
		room = c.limit - own
	}
	if f.root.limit != math.MaxInt64 {
		room = min(room, f.root.limit-f.reserved)
	}
	return room, f.reserved - c.reserved.Load()
}

// releaseOthers has the other members give cached memory back until need bytes
// went, and returns how many did. It is of no use when it is the pool's own
// limit that is in the way.
func (c *Caching) releaseOthers(need int64) (released int64, err error) {
	if c != c.family.root && need > c.limit-c.reserved.Load() {
		return 0, nil
	}
	for _, m := range c.family.list() {
		if m == c || m.isolated || released >= need {
			continue
		}
		m.flushAll()
		n, e := m.releaseUpTo(need - released)
		released, err = released+n, errors.Join(err, e)
	}
	return released, c.onlyLost(errors.Join(err, c.family.root.fadePools()))
}

// borrow serves a request of the root from free blocks of pools with UseOnOOM,
// in the order in which they were made.
func (c *Caching) borrow(r request) (Block, bool) {
	if c != c.family.root {
		return Block{}, false
	}
	for _, p := range c.family.pools() {
		if p.lends {
			if h, ok := p.lend(r); ok {
				return h, true
			}
		}
	}
	return Block{}, false
}

// lend serves a request from the pool's free blocks.
func (c *Caching) lend(r request) (Block, bool) {
	s := c.own(r.s)
	if s == nil {
		return Block{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usableLocked() != nil {
		return Block{}, false
	}
	if h, ok := s.takeLocked(r.size, r.rounded, 0); ok { // it finds no home here
		return h, true
	}
	s.collectLocked()
	s.flushLocked()
	return s.takeLocked(r.size, r.rounded, 0)
}
