package native

import (
	"errors"
	"fmt"
	"math"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/oomhint"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/internal/sizeclass"
)

// ladder lists the rungs that are tried in turn when the driver has no memory.
// Each rung reports whether to ask the driver again.
var ladder = []func(n *Allocator, size int64) (bool, error){
	func(n *Allocator, _ int64) (bool, error) { return true, n.root.Sync() },
	(*Allocator).releaseCached,
	func(n *Allocator, size int64) (bool, error) { return n.onOOM != nil && n.onOOM(size), nil },
}

// take gets memory for a request from the driver.
func (n *Allocator) take(size int64, s *cupool.Stream) (cupool.Ptr, error) {
	rounded := sizeclass.Round(size)
	p, err := n.d.AllocAsync(rounded, n.pool, s.Handle())
	for _, step := range ladder {
		if !errors.Is(err, cupool.ErrOutOfMemory) {
			break
		}
		again, e := step(n, size)
		if errors.Is(e, cupool.ErrDeviceLost) {
			return 0, poolaccess.Of(n.c).DriverError(e)
		}
		if !again {
			continue
		}
		if p, err = n.d.AllocAsync(rounded, n.pool, s.Handle()); err == nil {
			n.mu.Lock()
			n.books.retries++
			n.mu.Unlock()
		}
	}
	return p, poolaccess.Of(n.c).DriverError(err)
}

// releaseCached gives back the memory that the driver's pool and the Pool cache.
func (n *Allocator) releaseCached(size int64) (bool, error) {
	err := n.d.TrimNativePool(n.pool, 0)
	_, e := poolaccess.Of(n.c).Reclaim(sizeclass.Round(size))
	return true, errors.Join(err, e)
}

// allocError returns the error of an allocation that failed with cause.
func (n *Allocator) allocError(size int64, s *cupool.Stream, cause error) error {
	if !errors.Is(cause, cupool.ErrOutOfMemory) {
		return fmt.Errorf("cupool: allocating %d bytes of a native pool for %v: %w", size, s.Handle(), cause)
	}
	n.mu.Lock()
	n.books.ooms++
	n.mu.Unlock()
	e := &cupool.OOMError{
		Device: n.c.Driver().Name(), Stream: s.Handle(),
		Requested: size, Rounded: sizeclass.Round(size), Segment: sizeclass.Round(size),
		DeviceFree: -1, DeviceTotal: -1, Limit: n.maxSize, Cause: cause,
	}
	if st, err := n.Stats(); err == nil {
		e.Live, e.Reserved, e.Cached = st.Used, st.Reserved, st.Reserved-st.Used
	}
	for _, c := range append(n.root.Pools(), n.root) {
		e.OtherPools += c.Stats().All.ReservedBytes.Current
	}
	if free, total, err := n.c.Driver().MemInfo(); err == nil {
		e.DeviceFree, e.DeviceTotal = free, total
	}
	room := int64(math.MaxInt64)
	if e.Limit > 0 {
		room = e.Limit - e.Live
	}
	words := oomhint.GoWords
	words.Raise, words.OwnLimit = "the pool's MaxSize", "MaxSize: %[1]s"
	x := oomhint.Refusal{
		Rounded: e.Rounded, Segment: e.Segment, Live: e.Live, Reserved: e.Reserved, Cached: e.Cached, OtherPools: e.OtherPools, DeviceFree: e.DeviceFree, DeviceTotal: e.DeviceTotal,
		Limit: e.Limit, Room: room, LimitName: "pool's MaxSize", InPieces: "in pieces or for other streams",
		Settings: oomhint.Settings{Own: true, Words: &words, Virtual: true, Callback: n.onOOM != nil},
	}
	e.Reason, e.Settings, e.Hint = x.Explain()
	return e
}
