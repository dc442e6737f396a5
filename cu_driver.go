//go:build gpu

package cupool

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/device"
)

// cudaDriver is the Driver over CUDA. It is safe from several goroutines on
// any threads, but for Close, which nothing else may overlap.
type cudaDriver struct {
	ctx         *cudaContext
	kind        MemoryKind
	label       string
	granularity int64        // of virtual memory; 0: there is none
	waitCopyIn  bool         // see CopyIn
	major       int          // of the compute capability
	release     func() error // gives the primary context back
	closed      atomic.Bool
	managed     atomic.Int64 // bytes of MemAlloc; see takeManaged

	handles handleSet[int64]    // VMM handles of this Driver, with their size
	pools   handleSet[struct{}] // native pools that it made or imported
	opened  handleSet[struct{}] // other processes' memory that it maps
	pinned  registrations       // Go memory that it has page-locked
	blas    cudaBlas
}

// The parts that a CUDA Driver has.
var (
	_ Driver       = (*cudaDriver)(nil)
	_ StreamOwner  = (*cudaDriver)(nil)
	_ EventBatch   = (*cudaDriver)(nil)
	_ CUDAHandles  = (*cudaDriver)(nil)
	_ StreamInfo   = (*cudaDriver)(nil)
	_ HostMemory   = (*cudaDriver)(nil)
	_ ManagedHints = (*cudaDriver)(nil)
	_ MemoryIPC    = (*cudaDriver)(nil)
	_ NativePools  = (*cudaDriver)(nil)
)

// openDriver makes a Driver over a context, which release gives back, also
// when it fails.
func openDriver(c *cudaContext, release func() error, opts []CUDAOption) (Driver, error) {
	var o cudaOptions
	for _, opt := range opts {
		opt(&o)
	}
	if err := c.supports(o.kind); err != nil {
		c.leave()
		return nil, errors.Join(err, release())
	}
	name, _ := cuName(c.device)
	d := &cudaDriver{ctx: c, kind: o.kind, release: release}
	d.label = fmt.Sprintf("%s (%s, %v memory)", c.name(), name, o.kind)
	d.waitCopyIn = cuAttribute(c.device, attrHostPageTables) != 0
	d.major = cuAttribute(c.device, attrMajor)
	if o.kind == MemoryDevice && cuAttribute(c.device, attrVMM) != 0 {
		if g, r := cudadrv.Granularity(c.handle, c.device); r == cudadrv.Success {
			d.granularity = g
		}
	}
	return d, nil
}

// supports returns ErrNotSupported where the GPU does not have the kind of
// memory, or not at the address that the host has it at.
func (c *cudaContext) supports(k MemoryKind) error {
	attr, lacks := attrUnifiedAddressing, "one address space for GPU and host"
	switch k {
	case MemoryDevice, MemoryPinned:
	case MemoryManaged:
		attr, lacks = attrManaged, "managed memory"
	default:
		return &ConfigError{Field: "CUDAMemory", Value: k, Reason: "must be MemoryDevice, MemoryManaged or MemoryPinned"}
	}
	if cuAttribute(c.device, attr) == 0 {
		return fmt.Errorf("cupool: %s with %v memory: %w: the GPU lacks %s", c.name(), k, device.ErrNotSupported, lacks)
	}
	return nil
}

// Name implements Driver.
func (d *cudaDriver) Name() string { return d.label }

// HostAccessible implements Driver: managed and pinned memory is.
func (d *cudaDriver) HostAccessible() bool { return d.kind != MemoryDevice }

// CUDAContext implements CUDAHandles.
func (d *cudaDriver) CUDAContext() uintptr { return d.ctx.handle }

// CUDAOrdinal implements CUDAHandles.
func (d *cudaDriver) CUDAOrdinal() int { return d.ctx.device }

// usable returns nil, or why the Driver serves no calls any more.
func (d *cudaDriver) usable() error {
	if d.closed.Load() {
		return fmt.Errorf("cupool: %s: %w", d.label, device.ErrClosed)
	}
	return d.ctx.usable()
}

// Close waits for all work in the context, gives back what the Driver has
// made and not yet destroyed, and the primary context when OpenCUDA retained
// it. A second Close returns ErrClosed. Where the context is lost there is
// nothing to wait for, and what lost it is returned.
func (d *cudaDriver) Close() error {
	if d.closed.Swap(true) {
		return fmt.Errorf("cupool: %s: Close: %w", d.label, device.ErrClosed)
	}
	var errs []error
	note := func(call string, r cudadrv.Result) {
		if r != cudadrv.Success && d.ctx.usable() == nil {
			errs = append(errs, d.ctx.fail(call, r, "closing"))
		}
	}
	note("cuCtxSynchronize", d.ctx.synchronize())
	errs = append(errs, d.closeBlas())
	d.closeHandles(note)
	d.closeMemory(note)
	d.ctx.leave()
	if err := d.release(); err != nil && d.ctx.usable() == nil {
		errs = append(errs, d.ctx.fail("cuDevicePrimaryCtxRelease", cuResult(err), "closing"))
	}
	if err := d.ctx.usable(); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// closeHandles destroys the events and streams that the Driver still has.
func (d *cudaDriver) closeHandles(note func(call string, r cudadrv.Result)) {
	mine := func(owner *cudaDriver) bool { return owner == d }
	for _, e := range d.ctx.events.takeAll(mine) {
		note("cuEventDestroy", d.ctx.destroyEvent(EventHandle(e)))
	}
	for _, s := range d.ctx.streams.takeAll(mine) {
		note("cuStreamDestroy", d.ctx.destroyStream(StreamHandle(s)))
	}
}

// closeMemory gives back all memory that the Driver still has, mappings
// before what they map.
func (d *cudaDriver) closeMemory(note func(call string, r cudadrv.Result)) {
	ctx := d.ctx.handle
	all := func(struct{}) bool { return true }
	for _, p := range d.opened.takeAll(all) {
		note("cuIpcCloseMemHandle", cudadrv.IPCCloseMem(ctx, p))
	}
	for _, b := range d.pinned.takeAll() {
		note("cuMemHostUnregister", cudadrv.HostUnregister(ctx, b.bytes))
		b.pinner.Unpin()
	}
	spans := d.ctx.memory.takeAll(d)
	for _, s := range spans {
		if s.kind == spanReserved {
			for _, m := range s.mapped {
				note("cuMemUnmap", cudadrv.MemUnmap(ctx, uintptr(m.start), m.size))
			}
		}
	}
	for _, h := range d.handles.takeAll(func(int64) bool { return true }) {
		note("cuMemRelease", cudadrv.MemRelease(ctx, h))
	}
	for _, s := range spans {
		call, r := d.ctx.giveBack(s)
		note(call, r)
	}
	for _, p := range d.pools.takeAll(all) {
		note("cuMemPoolDestroy", cudadrv.PoolDestroy(ctx, p))
	}
}
