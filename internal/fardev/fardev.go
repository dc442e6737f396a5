// Package fardev makes memory that the CPU cannot touch out of the host
// device's, for tests of code that must not.
package fardev

import "github.com/cupool/cupool"

// Driver is a device behind addresses that the CPU cannot touch: a read or
// write of them ends the test at once. It has no virtual memory.
type Driver struct{ cupool.Driver }

const offset = 1 << 52

func (d Driver) HostAccessible() bool { return false }

func (d Driver) MemAlloc(n int64) (cupool.Ptr, error) {
	p, err := d.Driver.MemAlloc(n)
	if err != nil {
		return 0, err
	}
	return p + offset, nil
}

func (d Driver) MemFree(p cupool.Ptr) error { return d.Driver.MemFree(p - offset) }

func (d Driver) Copy(dst, src cupool.Ptr, n int64, s cupool.StreamHandle) error {
	return d.Driver.Copy(dst-offset, src-offset, n, s)
}

func (d Driver) CopyIn(dst cupool.Ptr, src []byte, s cupool.StreamHandle) error {
	return d.Driver.CopyIn(dst-offset, src, s)
}

func (d Driver) CopyOut(dst []byte, src cupool.Ptr, s cupool.StreamHandle) error {
	return d.Driver.CopyOut(dst, src-offset, s)
}

func (d Driver) Memset(dst cupool.Ptr, v byte, n int64, s cupool.StreamHandle) error {
	return d.Driver.Memset(dst-offset, v, n, s)
}
