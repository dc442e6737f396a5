package cupool

import (
	"errors"
	"fmt"
)

// PoolConfig sets up a private pool. What it does not name is as in the Config
// of the allocator that the pool is made of. Fraction, SoftLimit and InitialSize
// are the allocator's alone; SetSoftLimit gives a pool one of its own.
type PoolConfig struct {
	// Name is for people, in errors, logs and Pool.Name. Empty: "pool N",
	// where no two pools of a program have the same N.
	Name string

	// Limit bounds the bytes that this pool reserves, within the limit of
	// the allocator, which all its pools share. 0: no limit of its own.
	Limit int64

	// NoSplit gives every block a segment of its own, which stays whole, as
	// libraries want that register memory by segment. Virtual memory is not
	// used for such a pool.
	NoSplit bool

	// Isolated keeps what the pool caches where it is mapped, as for captured
	// work, which goes on using the addresses of freed blocks. It is not given
	// back because others lack memory, nor by Decay or a soft limit, but by
	// Trim, EmptyCache, Reset and Close. Sleep keeps the addresses. Where a
	// pool without virtual memory is about to fail with an *OOMError, it
	// gives its own idle segments back first.
	Isolated bool

	// UseOnOOM lets free blocks of the pool serve requests to the allocator
	// that the device refuses. They go back to the pool when they are freed.
	UseOnOOM bool

	// Alloc and Free, given together, are where the pool's segments come
	// from, in place of Driver.MemAlloc and MemFree. Sizes are in bytes;
	// addresses are multiples of 512 that the device can use. A failing
	// Alloc that matches ErrOutOfMemory has the pool try to make room, any
	// other ends the allocation. So does any other address, and 0, with
	// ErrInvalidRange, and one of memory that the pool holds, which is not
	// given to Free then. They are called with locks held, from any
	// goroutine, and must not call the allocator. Virtual memory is not used
	// with them. nil: the device.
	Alloc func(size int64) (Ptr, error)
	Free  func(p Ptr, size int64) error

	// ZeroOnAlloc and ZeroOnFree are those of Config, for this pool, which
	// has them too where Config says so. False: as Config says.
	ZeroOnAlloc, ZeroOnFree bool
}

func (cfg *PoolConfig) validate() error {
	switch {
	case cfg.Limit < 0:
		return &ConfigError{Field: "Limit", Value: cfg.Limit, Reason: "must not be negative; 0 means no limit of the pool's own"}
	case (cfg.Alloc == nil) != (cfg.Free == nil):
		return &ConfigError{Field: "Alloc", Value: cfg.Alloc != nil, Reason: "Alloc and Free belong together"}
	case cfg.Isolated && cfg.UseOnOOM:
		return &ConfigError{Field: "UseOnOOM", Value: true, Reason: "an Isolated pool does not lend its memory"}
	}
	return nil
}

// NewPool makes a private pool of the allocator: a Pool whose blocks share
// no segment with those of others, for the same streams of the same device.
// Close gives all its memory back, live blocks too; Retire waits until the last block
// is freed.
//
// The allocator and each of its pools has statistics, Trim, Sleep and a limit of its
// own. Together they keep to the limit of the allocator. Free, FreePtr, RecordStream and Lookup take the blocks of any
// of them; NewStream makes streams for all.
//
// A pool of a pool is one of the same allocator, with the pool's settings. It
// fails with a *ConfigError, ErrClosed, or what the device says.
func (c *Pool) NewPool(cfg PoolConfig) (*Pool, error) {
	if err := c.made("new pool"); err != nil {
		return nil, err
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if c.closed.Load() {
		return nil, fmt.Errorf("cupool: new pool on %s: %w", c.driver.Name(), ErrClosed)
	}
	were := c.dev.root.tuned.Load()
	p := c.unopened(cfg)
	if err := p.begin(cfg.NoSplit); err != nil {
		return nil, err
	}
	var err error
	if p.def, err = p.heaps.make(c.dev.def); err != nil {
		return nil, fmt.Errorf("cupool: new pool on %s: %w", c.driver.Name(), err)
	}
	p.reclaim.startDecay()
	if err := c.dev.join(p, were); err != nil { // from here on Close of the allocator ends the pool
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// unopened returns a pool with all that it has from its own settings and from
// the pool that it is made of.
func (c *Pool) unopened(cfg PoolConfig) *Pool {
	d := c.dev
	p := &Pool{pool: pool{dev: d, driver: d.driver, cfg: *c.tuned.Load(), id: pools.Add(1)}}
	p.budget.Limit = d.budget.Limit
	p.name = cfg.Name
	p.isolated.Store(cfg.Isolated)
	p.lends.Store(cfg.UseOnOOM)
	if p.name == "" {
		p.name = fmt.Sprintf("pool %d", p.id)
	}
	p.cfg.Driver, p.cfg.Limit, p.cfg.Fraction, p.cfg.SoftLimit = p.driver, cfg.Limit, 0, 0
	p.cfg.InitialSize = 0
	p.cfg.ZeroOnAlloc = p.cfg.ZeroOnAlloc || cfg.ZeroOnAlloc
	p.cfg.ZeroOnFree = p.cfg.ZeroOnFree || cfg.ZeroOnFree
	p.cfg.Logger, p.log = d.root.cfg.Logger.With("pool", p.name), d.logger.With("pool", p.name)
	if cfg.Limit > 0 {
		p.budget.Limit = min(p.budget.Limit, cfg.Limit)
	}
	if cfg.Alloc != nil {
		p.driver = newUpstream(d.driver, cfg.Alloc, cfg.Free)
		p.cfg.Driver, p.ownMemory = p.driver, true
	}
	if cfg.Alloc != nil || cfg.NoSplit {
		p.cfg.Backing = BackingSegments
	}
	return p
}

// Name returns the name of a private pool, "" for an allocator that New made.
func (c *Pool) Name() string {
	if c.isNone() {
		return ""
	}
	return c.name
}

// Pools lists the private pools of the allocator that are not closed,
// in the order in which they were made.
func (c *Pool) Pools() []*Pool {
	if c.isNone() {
		return nil
	}
	return c.dev.private()
}
