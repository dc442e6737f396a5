package cuda

import (
	"fmt"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
)

// NewStream implements Driver. The stream does not wait for the null stream,
// nor the null stream for it.
func (d *driver) NewStream() (StreamHandle, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	h, r := cudadrv.NewStream(d.ctx.handle)
	if r != cudadrv.Success {
		return 0, d.ctx.fail("cuStreamCreate", r, "")
	}
	d.ctx.streams.put(h, d.id)
	return StreamHandle(h), nil
}

// DestroyStream implements Driver. It fails with ErrInvalidHandle for a stream
// that this Driver did not make.
func (d *driver) DestroyStream(s StreamHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	maker, ok := d.ctx.streams.take(uintptr(s))
	if !ok || maker != d.id {
		if ok {
			d.ctx.streams.put(uintptr(s), maker)
		}
		return fmt.Errorf("cupool: %s: DestroyStream: %w: this Driver did not make %v, or destroyed it before", d.label, device.ErrInvalidHandle, s)
	}
	if r := cudadrv.StreamSync(d.ctx.handle, uintptr(s)); r != cudadrv.Success {
		d.ctx.streams.put(uintptr(s), d.id)
		return d.ctx.fail("cuStreamSynchronize", r, stream(s))
	}
	d.blas.leave(s)
	if r := cudadrv.DestroyStream(d.ctx.handle, uintptr(s)); r != cudadrv.Success {
		d.ctx.streams.put(uintptr(s), d.id)
		return d.ctx.fail("cuStreamDestroy", r, stream(s))
	}
	return nil
}

// OwnsStream implements cupool.StreamOwner. It returns nil for any stream of this
// context, and ErrForeignStream for others. It asks the driver
// each time, as handles are used again after streams are destroyed.
func (d *driver) OwnsStream(s StreamHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	if s <= PerThreadStream {
		return nil
	}
	ctx, r := cudadrv.StreamCtx(d.ctx.handle, uintptr(s))
	if r != cudadrv.Success {
		return d.ctx.fail("cuStreamGetCtx", r, stream(s))
	}
	if ctx != d.ctx.handle {
		return fmt.Errorf("cupool: %s: %w: %v belongs to %s", d.label, device.ErrForeignStream, s, describeContext(ctx))
	}
	if !d.ctx.streams.has(uintptr(s)) {
		d.ctx.streams.put(uintptr(s), nobody)
	}
	return nil
}

// describeContext names a context that is not this Driver's.
func describeContext(handle uintptr) string {
	contexts.Lock()
	defer contexts.Unlock()
	if c := contexts.byHandle[handle]; c != nil {
		return c.name()
	}
	return fmt.Sprintf("context 0x%x", handle)
}

// checkStream returns nil for the streams of this context. It asks the driver
// about a stream that it has not seen.
func (d *driver) checkStream(s StreamHandle) error {
	if s <= PerThreadStream || d.ctx.streams.has(uintptr(s)) {
		return nil
	}
	return d.OwnsStream(s)
}

// on returns nil when the Driver is usable and the stream is one of its context.
func (d *driver) on(s StreamHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	return d.checkStream(s)
}

// SyncStream implements Driver.
func (d *driver) SyncStream(s StreamHandle) error {
	if err := d.on(s); err != nil {
		return err
	}
	if r := cudadrv.StreamSync(d.ctx.handle, uintptr(s)); r != cudadrv.Success {
		return d.ctx.fail("cuStreamSynchronize", r, stream(s))
	}
	return nil
}

// StreamID implements StreamInfo.
func (d *driver) StreamID(s StreamHandle) (uint64, error) {
	if err := d.on(s); err != nil {
		return 0, err
	}
	id, r := cudadrv.StreamID(d.ctx.handle, uintptr(s))
	if r != cudadrv.Success {
		return 0, d.ctx.fail("cuStreamGetId", r, stream(s))
	}
	return id, nil
}

// StreamCapture implements StreamInfo.
func (d *driver) StreamCapture(s StreamHandle) (capturing bool, id uint64, err error) {
	if err := d.on(s); err != nil {
		return false, 0, err
	}
	state, id, r := cudadrv.StreamCapture(d.ctx.handle, uintptr(s))
	switch {
	case r != cudadrv.Success:
		return false, 0, d.ctx.fail("cuStreamGetCaptureInfo", r, stream(s))
	case state == cudadrv.CaptureInvalidated:
		return false, 0, fmt.Errorf("cupool: %s: the capture of %v was invalidated", d.label, s)
	}
	return state == cudadrv.Capturing, id, nil
}

func stream(s StreamHandle) string { return s.String() }
