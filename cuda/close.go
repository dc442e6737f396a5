package cuda

import (
	"errors"
	"fmt"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
)

// Close implements Driver. It waits for all work in the context. It gives back all
// objects that the Driver made and has not destroyed, and the primary context when
// Open retained it. A second Close returns ErrClosed. Where the context is lost,
// Close does not wait and returns the error that lost it.
func (d *driver) Close() error {
	if d.closed.Swap(true) {
		return fmt.Errorf("cupool: %s: Close: %w", d.label, device.ErrClosed)
	}
	var errs []error
	note := func(call string, r cudadrv.Result) {
		if r != cudadrv.Success && d.ctx.usable() == nil {
			errs = append(errs, d.ctx.fail(call, r, "closing"))
		}
	}
	note("cuCtxSynchronize", cudadrv.Synchronize(d.ctx.handle))
	if err := d.blas.close(); err != nil && d.ctx.usable() == nil {
		errs = append(errs, err)
	}
	d.closeHandles(note)
	d.closeMemory(note)
	d.ctx.leave()
	note("cuDevicePrimaryCtxRelease", d.release())
	if err := d.ctx.usable(); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// closeHandles destroys the events and streams that the Driver still has.
func (d *driver) closeHandles(note func(call string, r cudadrv.Result)) {
	mine := func(o owner) bool { return o == d.id }
	for _, e := range d.ctx.events.takeAll(mine) {
		note("cuEventDestroy", cudadrv.DestroyEvent(d.ctx.handle, e))
	}
	for _, s := range d.ctx.streams.takeAll(mine) {
		note("cuStreamDestroy", cudadrv.DestroyStream(d.ctx.handle, s))
	}
}

// closeMemory gives back all memory that the Driver still has, each mapping before
// the memory that it maps.
func (d *driver) closeMemory(note func(call string, r cudadrv.Result)) {
	ctx := d.ctx.handle
	all := func(struct{}) bool { return true }
	for _, p := range d.opened.takeAll() {
		note("cuIpcCloseMemHandle", cudadrv.IPCCloseMem(ctx, p))
	}
	for _, b := range d.pinned.takeAll() {
		note("cuMemHostUnregister", cudadrv.HostUnregister(ctx, b.bytes))
		b.pinner.Unpin()
	}
	spans := d.ctx.memory.takeAll(d.id)
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
