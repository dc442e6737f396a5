package cuda

import (
	"fmt"
	"sync/atomic"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/leaks"
)

// driver implements Driver.
type driver struct {
	traits
	id      owner
	ctx     *context
	release func() cudadrv.Result // gives the primary context back
	closed  atomic.Bool
	managed atomic.Int64 // bytes of MemAlloc; see takeManaged
	way     atomic.Int32 // that MemCreate goes, of ways

	handles handleSet[int64]    // of physical memory, with its size in bytes
	pools   handleSet[struct{}] // native pools that it made or imported
	opened  openings            // other processes' memory that it maps
	pinned  registrations       // Go memory that it has page-locked
	imports imports             // other processes' ranges that it maps
	blas    blasHandles
}

// traits do not change while a Driver is open.
type traits struct {
	kind        MemoryKind
	label       string
	granularity int64 // of virtual memory, in bytes; 0: there is none
	ways        []way // that MemCreate may go, the best first
	waitCopyIn  bool  // see CopyIn
	major       int   // of the compute capability
}

// Name implements Driver.
func (d *driver) Name() string { return d.label }

// HostAccessible implements Driver: managed and pinned memory is.
func (d *driver) HostAccessible() bool { return d.kind != MemoryDevice }

// Context implements Handles.
func (d *driver) Context() uintptr { return d.ctx.handle }

// Ordinal implements Handles.
func (d *driver) Ordinal() int { return d.ctx.device }

// usable returns nil, or the error that every call of the Driver returns.
func (d *driver) usable() error {
	if d.closed.Load() {
		return fmt.Errorf("cupool: %s: %w", d.label, device.ErrClosed)
	}
	return d.ctx.usable()
}

// Held returns what the Driver holds. Page-locked memory counts with its
// addresses.
func (d *driver) Held() leaks.Held {
	own := func(o owner) bool { return o == d.id }
	h := leaks.Held{Streams: d.ctx.streams.count(own), Events: d.ctx.events.count(own)}
	h.Ranges, h.RangeBytes = d.ctx.memory.count(d.id)
	return h
}
