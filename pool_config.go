package cupool

import "sync"

// PoolConfig sets up a private pool. What it does not name is as in the Config
// of the allocator that the pool is made of.
type PoolConfig struct {
	// Name is for people, in errors, logs and Caching.Name. Empty: "pool N",
	// where no two pools of a program have the same N.
	Name string

	// Limit bounds the bytes that this pool reserves, within the limit of
	// the allocator, which all its pools share. 0: no limit of its own.
	Limit int64

	// NoSplit gives every block a segment of its own, which stays whole, as
	// libraries want that register memory by segment. Virtual memory is not
	// used for such a pool.
	NoSplit bool

	// Isolated keeps what the pool caches from being given back because
	// others lack memory, as for addresses that captured work goes on using.
	Isolated bool

	// UseOnOOM lets free blocks of the pool serve requests to the allocator
	// that the device refuses. They go back to the pool when they are freed.
	UseOnOOM bool

	// Alloc and Free, given together, are where the pool's segments come
	// from, in place of Driver.MemAlloc and MemFree. Sizes are in bytes;
	// addresses are multiples of 512 that the device can use. A failing
	// Alloc that matches ErrOutOfMemory has the pool try to make room, any
	// other ends the allocation. They are called with locks held, from any
	// goroutine, and must not call the allocator. Virtual memory is not used
	// with them. nil: the device.
	Alloc func(size int64) (Ptr, error)
	Free  func(p Ptr, size int64) error
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

// upstream is a device whose memory comes from the program's own functions. It
// hides the optional parts of the device that have to do with memory.
type upstream struct {
	Driver
	alloc func(size int64) (Ptr, error)
	free  func(p Ptr, size int64) error

	mu    sync.Mutex
	sizes map[Ptr]int64
}

// MemAlloc implements Driver.
func (u *upstream) MemAlloc(size int64) (Ptr, error) {
	p, err := u.alloc(size)
	if err != nil {
		return 0, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sizes[p] = size
	return p, nil
}

// MemFree implements Driver.
func (u *upstream) MemFree(p Ptr) error {
	u.mu.Lock()
	size := u.sizes[p]
	u.mu.Unlock()
	if err := u.free(p, size); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sizes[p] == size {
		delete(u.sizes, p)
	}
	return nil
}
