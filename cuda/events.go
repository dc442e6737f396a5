package cuda

import (
	"fmt"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
)

// NewEvent implements Driver.
func (d *driver) NewEvent() (EventHandle, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	h, r := cudadrv.NewEvent(d.ctx.handle)
	if r != cudadrv.Success {
		return 0, d.ctx.fail("cuEventCreate", r, "")
	}
	d.ctx.events.put(h, d.id)
	return EventHandle(h), nil
}

// DestroyEvent implements Driver.
func (d *driver) DestroyEvent(e EventHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	maker, ok := d.ctx.events.take(uintptr(e))
	if !ok {
		return d.unknownEvent("DestroyEvent", e)
	}
	if r := cudadrv.DestroyEvent(d.ctx.handle, uintptr(e)); r != cudadrv.Success {
		d.ctx.events.put(uintptr(e), maker)
		return d.ctx.fail("cuEventDestroy", r, event(e))
	}
	return nil
}

// RecordEvent implements Driver.
func (d *driver) RecordEvent(e EventHandle, s StreamHandle) error {
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
func (d *driver) QueryEvent(e EventHandle) (done bool, err error) {
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
func (d *driver) QueryEvents(es []EventHandle) (done int, err error) {
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
func (d *driver) SyncEvent(e EventHandle) error {
	if err := d.checkEvent("SyncEvent", e); err != nil {
		return err
	}
	if r := cudadrv.EventSync(d.ctx.handle, uintptr(e)); r != cudadrv.Success {
		return d.ctx.fail("cuEventSynchronize", r, event(e))
	}
	return nil
}

// StreamWaitEvent implements Driver.
func (d *driver) StreamWaitEvent(s StreamHandle, e EventHandle) error {
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
func (d *driver) checkEvent(op string, e EventHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	if !d.ctx.events.has(uintptr(e)) {
		return d.unknownEvent(op, e)
	}
	return nil
}

func (d *driver) unknownEvent(op string, e EventHandle) error {
	return fmt.Errorf("cupool: %s: %s: %w: %s was not made by a Driver of this context, or was destroyed", d.label, op, device.ErrInvalidHandle, event(e))
}

func event(e EventHandle) string { return fmt.Sprintf("event 0x%x", uintptr(e)) }
