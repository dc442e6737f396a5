//go:build gpu

package cupool

import (
	"fmt"

	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/device"
)

// Handles of streams that every context has. The null stream is that of the
// Driver's context; the per-thread default stream is that of the OS thread
// that makes the call, so programs that use it lock theirs.
const (
	// CUDALegacyStream is the null stream by its other name.
	CUDALegacyStream StreamHandle = 1
	// CUDAPerThreadStream is the calling thread's own default stream.
	CUDAPerThreadStream StreamHandle = 2
)

// NewStream implements Driver. The stream does not wait for the null stream,
// nor the null stream for it.
func (d *cudaDriver) NewStream() (StreamHandle, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	h, r := d.ctx.newStream()
	if r != cudadrv.Success {
		return 0, d.ctx.fail("cuStreamCreate", r, "")
	}
	d.ctx.streams.put(uintptr(h), d)
	return h, nil
}

// DestroyStream implements Driver. Streams that others made are theirs to
// destroy: for them it fails with ErrInvalidHandle.
func (d *cudaDriver) DestroyStream(s StreamHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	owner, ok := d.ctx.streams.take(uintptr(s))
	if !ok || owner != d {
		if ok {
			d.ctx.streams.put(uintptr(s), owner)
		}
		return fmt.Errorf("cupool: %s: DestroyStream: %w: this Driver did not make stream 0x%x, or destroyed it before", d.label, device.ErrInvalidHandle, uintptr(s))
	}
	if r := cudadrv.StreamSync(d.ctx.handle, uintptr(s)); r != cudadrv.Success {
		d.ctx.streams.put(uintptr(s), d)
		return d.ctx.fail("cuStreamSynchronize", r, stream(s))
	}
	d.blas.leave(s)
	if r := d.ctx.destroyStream(s); r != cudadrv.Success {
		d.ctx.streams.put(uintptr(s), d)
		return d.ctx.fail("cuStreamDestroy", r, stream(s))
	}
	return nil
}

// OwnsStream implements StreamOwner: nil for a stream of this context, which
// may be anybody's. It fails with ErrForeignStream for others. It asks the
// driver each time, as handles are used again after streams are destroyed.
func (d *cudaDriver) OwnsStream(s StreamHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	if s <= CUDAPerThreadStream {
		return nil
	}
	ctx, r := cudadrv.StreamCtx(d.ctx.handle, uintptr(s))
	if r != cudadrv.Success {
		return d.ctx.fail("cuStreamGetCtx", r, stream(s))
	}
	if ctx != d.ctx.handle {
		return fmt.Errorf("cupool: %s: %w: stream 0x%x belongs to %s", d.label, ErrForeignStream, uintptr(s), describeContext(ctx))
	}
	if !d.ctx.streams.has(uintptr(s)) {
		d.ctx.streams.put(uintptr(s), nil)
	}
	return nil
}

// describeContext names a context that is not this Driver's.
func describeContext(handle uintptr) string {
	cudaContexts.Lock()
	defer cudaContexts.Unlock()
	if c := cudaContexts.byHandle[handle]; c != nil {
		return c.name()
	}
	return fmt.Sprintf("context 0x%x", handle)
}

// checkStream returns nil for the streams of this context. One not seen
// before is looked at once.
func (d *cudaDriver) checkStream(s StreamHandle) error {
	if s <= CUDAPerThreadStream || d.ctx.streams.has(uintptr(s)) {
		return nil
	}
	return d.OwnsStream(s)
}

// SyncStream implements Driver.
func (d *cudaDriver) SyncStream(s StreamHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	if err := d.checkStream(s); err != nil {
		return err
	}
	if r := cudadrv.StreamSync(d.ctx.handle, uintptr(s)); r != cudadrv.Success {
		return d.ctx.fail("cuStreamSynchronize", r, stream(s))
	}
	return nil
}

// NewEvent implements Driver.
func (d *cudaDriver) NewEvent() (EventHandle, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	h, r := d.ctx.newEvent()
	if r != cudadrv.Success {
		return 0, d.ctx.fail("cuEventCreate", r, "")
	}
	d.ctx.events.put(uintptr(h), d)
	return h, nil
}

// DestroyEvent implements Driver.
func (d *cudaDriver) DestroyEvent(e EventHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	owner, ok := d.ctx.events.take(uintptr(e))
	if !ok {
		return d.unknownEvent("DestroyEvent", e)
	}
	if r := d.ctx.destroyEvent(e); r != cudadrv.Success {
		d.ctx.events.put(uintptr(e), owner)
		return d.ctx.fail("cuEventDestroy", r, event(e))
	}
	return nil
}

// RecordEvent implements Driver.
func (d *cudaDriver) RecordEvent(e EventHandle, s StreamHandle) error {
	if err := d.checkEvent("RecordEvent", e); err != nil {
		return err
	}
	if err := d.checkStream(s); err != nil {
		return err
	}
	if r := cudadrv.EventRecord(d.ctx.handle, uintptr(e), uintptr(s)); r != cudadrv.Success {
		return d.ctx.fail("cuEventRecord", r, event(e)+", "+stream(s))
	}
	return nil
}

// QueryEvent implements Driver.
func (d *cudaDriver) QueryEvent(e EventHandle) (done bool, err error) {
	if err := d.checkEvent("QueryEvent", e); err != nil {
		return false, err
	}
	switch r := cudadrv.EventQuery(d.ctx.handle, uintptr(e)); r {
	case cudadrv.Success:
		return true, nil
	case cudadrv.NotReady:
		return false, nil
	default:
		return false, d.ctx.fail("cuEventQuery", r, event(e))
	}
}

// QueryEvents implements EventBatch.
func (d *cudaDriver) QueryEvents(es []EventHandle) (done int, err error) {
	raw := make([]uintptr, 0, 32)
	for _, e := range es {
		if err := d.checkEvent("QueryEvents", e); err != nil {
			return 0, err
		}
		raw = append(raw, uintptr(e))
	}
	done, r := cudadrv.EventQueryAll(d.ctx.handle, raw)
	if r != cudadrv.Success {
		return done, d.ctx.fail("cuEventQuery", r, event(es[done]))
	}
	return done, nil
}

// SyncEvent implements Driver.
func (d *cudaDriver) SyncEvent(e EventHandle) error {
	if err := d.checkEvent("SyncEvent", e); err != nil {
		return err
	}
	if r := cudadrv.EventSync(d.ctx.handle, uintptr(e)); r != cudadrv.Success {
		return d.ctx.fail("cuEventSynchronize", r, event(e))
	}
	return nil
}

// StreamWaitEvent implements Driver.
func (d *cudaDriver) StreamWaitEvent(s StreamHandle, e EventHandle) error {
	if err := d.checkEvent("StreamWaitEvent", e); err != nil {
		return err
	}
	if err := d.checkStream(s); err != nil {
		return err
	}
	if r := cudadrv.StreamWaitEvent(d.ctx.handle, uintptr(s), uintptr(e)); r != cudadrv.Success {
		return d.ctx.fail("cuStreamWaitEvent", r, stream(s)+", "+event(e))
	}
	return nil
}

// checkEvent returns nil when the Driver is usable and knows the event.
func (d *cudaDriver) checkEvent(op string, e EventHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	if !d.ctx.events.has(uintptr(e)) {
		return d.unknownEvent(op, e)
	}
	return nil
}

func (d *cudaDriver) unknownEvent(op string, e EventHandle) error {
	return fmt.Errorf("cupool: %s: %s: %w: %s was not made by a Driver of this context, or was destroyed", d.label, op, device.ErrInvalidHandle, event(e))
}

// StreamID implements StreamInfo.
func (d *cudaDriver) StreamID(s StreamHandle) (uint64, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	if err := d.checkStream(s); err != nil {
		return 0, err
	}
	id, r := cudadrv.StreamID(d.ctx.handle, uintptr(s))
	if r != cudadrv.Success {
		return 0, d.ctx.fail("cuStreamGetId", r, stream(s))
	}
	return id, nil
}

// StreamCapture implements StreamInfo.
func (d *cudaDriver) StreamCapture(s StreamHandle) (capturing bool, id uint64, err error) {
	if err := d.usable(); err != nil {
		return false, 0, err
	}
	if err := d.checkStream(s); err != nil {
		return false, 0, err
	}
	state, id, r := cudadrv.StreamCapture(d.ctx.handle, uintptr(s))
	switch {
	case r != cudadrv.Success:
		return false, 0, d.ctx.fail("cuStreamGetCaptureInfo", r, stream(s))
	case state == cudadrv.CaptureInvalidated:
		return false, 0, fmt.Errorf("cupool: %s: the capture of stream 0x%x was invalidated", d.label, uintptr(s))
	}
	return state == cudadrv.Capturing, id, nil
}

func stream(s StreamHandle) string { return fmt.Sprintf("stream 0x%x", uintptr(s)) }

func event(e EventHandle) string { return fmt.Sprintf("event 0x%x", uintptr(e)) }
