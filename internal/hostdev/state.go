package hostdev

import (
	"fmt"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/hostdev/sysmem"
)

// usable returns nil, or why the device serves no calls any more.
func (d *Device) usable(op string) error {
	if d.closed.Load() {
		return fmt.Errorf("hostdev: %s: %w", op, device.ErrClosed)
	}
	if e := d.lost.Load(); e != nil {
		return fmt.Errorf("hostdev: %s: %w", op, *e)
	}
	return nil
}

// failure wraps err with the operation. What a call under way finds missing
// because Close took it away is reported as ErrClosed.
func (d *Device) failure(op string, err error) error {
	if err != nil && d.closed.Load() {
		err = device.ErrClosed
	}
	if err != nil {
		err = fmt.Errorf("hostdev: %s: %w", op, err)
	}
	return err
}

// lose makes the device lost. The first reason stays.
func (d *Device) lose(reason string) {
	err := fmt.Errorf("%w: %s", device.ErrDeviceLost, reason)
	d.lost.CompareAndSwap(nil, &err)
}

// roomLocked returns ErrOutOfMemory unless size more bytes fit.
func (d *Device) roomLocked(op string, size int64) error {
	if d.closed.Load() {
		return fmt.Errorf("hostdev: %s: %w", op, device.ErrClosed)
	}
	free := d.capacity - d.used
	// Compared before rounding, which overflows for sizes near 1<<63.
	if size > free || roundPage(size) > free {
		return fmt.Errorf("hostdev: %s: %w: %d bytes asked for, %d of %d free",
			op, device.ErrOutOfMemory, size, free, d.capacity)
	}
	return nil
}

// giveBack returns bytes to the capacity. Close may have done so already.
func (d *Device) giveBack(size int64) {
	d.mu.Lock()
	if !d.closed.Load() {
		d.used -= size
	}
	d.mu.Unlock()
}

func roundPage(size int64) int64 { return (size + sysmem.PageSize - 1) &^ (sysmem.PageSize - 1) }
