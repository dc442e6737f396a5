package cupool

import (
	"errors"
	"fmt"
	"math"

	"github.com/cupool/cupool/internal/sizeclass"
)

// nativeLadder is what is tried, in turn, when the driver has no memory. It
// reports whether to ask again.
var nativeLadder = []func(n *Native, size int64) (bool, error){
	func(n *Native, _ int64) (bool, error) { return true, n.c.family.syncAll() },
	(*Native).releaseCached,
	func(n *Native, size int64) (bool, error) {
		f := n.c.cfg.OnOutOfMemory
		return f != nil && f(size), nil
	},
}

// take gets memory from the driver.
func (n *Native) take(size int64, s *Stream) (Ptr, error) {
	p, err := n.d.AllocAsync(size, n.pool, s.handle)
	for _, step := range nativeLadder {
		if !errors.Is(err, ErrOutOfMemory) {
			break
		}
		again, e := step(n, size)
		if e := n.c.onlyLost(e); e != nil {
			return 0, e
		}
		if !again {
			continue
		}
		if p, err = n.d.AllocAsync(size, n.pool, s.handle); err == nil {
			n.mu.Lock()
			n.books.retries++
			n.mu.Unlock()
		}
	}
	return p, n.c.driverError(err)
}

// releaseCached gives back what the pool and the allocators beside it cache.
func (n *Native) releaseCached(size int64) (bool, error) {
	err := n.d.TrimNativePool(n.pool, 0)
	for _, m := range n.c.family.list() {
		if !m.isolated {
			m.flushAll()
			_, e := m.releaseUpTo(size)
			err = errors.Join(err, e)
		}
	}
	return true, err
}

// allocError tells what a failing allocation means.
func (n *Native) allocError(size int64, s *Stream, cause error) error {
	if !errors.Is(cause, ErrOutOfMemory) {
		return fmt.Errorf("cupool: allocating %d bytes of a native pool for stream 0x%x: %w", size, uintptr(s.handle), cause)
	}
	n.mu.Lock()
	n.books.ooms++
	n.mu.Unlock()
	e := &OOMError{
		Device: n.c.Driver().Name(), Stream: s.handle,
		Requested: size, Rounded: sizeclass.Round(size), Segment: sizeclass.Round(size),
		DeviceFree: -1, DeviceTotal: -1, Limit: n.maxSize, room: math.MaxInt64, Cause: cause,
	}
	if st, err := n.Stats(); err == nil {
		e.Live, e.Reserved, e.Cached = st.Used, st.Reserved, st.Reserved-st.Used
		if n.maxSize > 0 {
			e.room = n.maxSize - st.Used
		}
	}
	for _, m := range n.c.family.list() {
		e.OtherPools += m.reserved.Load()
	}
	if free, total, err := n.c.Driver().MemInfo(); err == nil {
		e.DeviceFree, e.DeviceTotal = free, total
	}
	e.Hint = e.hint()
	return e
}
