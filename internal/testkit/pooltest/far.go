package pooltest

import "github.com/cupool/cupool"

// Far is a device behind addresses that the CPU cannot touch: a read or
// write of them ends the test at once. It has no virtual memory.
type Far struct{ cupool.Driver }

// bit is changed in all addresses. It is one that user space has, so that the
// address of a fault is known.
const bit = 1 << 46

func (d Far) HostAccessible() bool { return false }

func (d Far) MemAlloc(n int64) (cupool.Ptr, error) {
	p, err := d.Driver.MemAlloc(n)
	if err != nil {
		return 0, err
	}
	return p ^ bit, nil
}

func (d Far) MemFree(p cupool.Ptr) error { return d.Driver.MemFree(p ^ bit) }

func (d Far) Copy(dst, src cupool.Ptr, n int64, s cupool.StreamHandle) error {
	return d.Driver.Copy(dst^bit, src^bit, n, s)
}

func (d Far) CopyIn(dst cupool.Ptr, src []byte, s cupool.StreamHandle) error {
	return d.Driver.CopyIn(dst^bit, src, s)
}

func (d Far) CopyOut(dst []byte, src cupool.Ptr, s cupool.StreamHandle) error {
	return d.Driver.CopyOut(dst, src^bit, s)
}

func (d Far) Memset(dst cupool.Ptr, v byte, n int64, s cupool.StreamHandle) error {
	return d.Driver.Memset(dst^bit, v, n, s)
}
