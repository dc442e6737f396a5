package simdev

import "github.com/cupool/cupool/device"

// Copy checks the ranges, as a device would, and moves nothing. It returns
// ErrInvalidRange when one is not inside one allocation or mapping, and
// ErrInvalidHandle for an unknown stream.
func (d *Device) Copy(dst, src device.Ptr, n int64, h device.Stream) error {
	return d.memoryWork(Copy, dst, src, n, h)
}

// CopyIn checks the range and moves nothing. Errors are those of Copy.
func (d *Device) CopyIn(dst device.Ptr, src []byte, h device.Stream) error {
	return d.memoryWork(CopyIn, dst, 0, int64(len(src)), h)
}

// CopyOut checks the range, completes the stream's work, and leaves dst as it
// is. Errors are those of Copy.
func (d *Device) CopyOut(dst []byte, src device.Ptr, h device.Stream) error {
	return d.memoryWork(CopyOut, 0, src, int64(len(dst)), h)
}

// Memset checks the range and sets nothing. Errors are those of Copy.
func (d *Device) Memset(dst device.Ptr, _ byte, n int64, h device.Stream) error {
	return d.memoryWork(Memset, dst, 0, n, h)
}

func (d *Device) memoryWork(c Call, dst, src device.Ptr, n int64, h device.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.beginOnLocked(c, h)
	if err != nil {
		return err
	}
	if c != CopyOut {
		err = d.space.Check(dst, n)
	}
	if err == nil && (c == Copy || c == CopyOut) {
		err = d.space.Check(src, n)
	}
	if err != nil {
		return wrap(c, err)
	}
	if d.cfg.ManualEvents && n > 0 {
		d.queueLocked(s, op{ranges: [2]device.Ptr{dst, src}, n: n})
		if c == CopyOut {
			return d.waitLocked(c, s, s.submitted)
		}
	}
	return nil
}
