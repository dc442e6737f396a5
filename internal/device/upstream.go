package device

import "sync"

// Upstream is memory that comes from functions of a program, in place of a device's
// own. It is safe for use from several goroutines, as far as they are.
type Upstream struct {
	alloc func(size int64) (Ptr, error)
	free  func(p Ptr, size int64) error

	mu    sync.Mutex
	sizes map[Ptr]int64
}

// NewUpstream returns memory of two functions.
func NewUpstream(alloc func(size int64) (Ptr, error), free func(p Ptr, size int64) error) *Upstream {
	return &Upstream{alloc: alloc, free: free, sizes: map[Ptr]int64{}}
}

// MemAlloc is a Driver's.
func (u *Upstream) MemAlloc(size int64) (Ptr, error) {
	p, err := u.alloc(size)
	if err != nil {
		return 0, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sizes[p] = size
	return p, nil
}

// MemFree is a Driver's.
func (u *Upstream) MemFree(p Ptr) error {
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
