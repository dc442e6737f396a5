package cuda

import (
	"errors"
	"fmt"

	"github.com/cupool/cupool/internal/cudadrv"
)

// Copy implements Driver. Either side may be any memory that CUDA knows. Memory
// of another device has to be that of a Driver, or be reached by EnablePeer.
func (d *driver) Copy(dst, src Ptr, n int64, s StreamHandle) error {
	if err := d.on(s); err != nil {
		return err
	}
	to, err := d.ctx.whose(dst, n)
	if err != nil {
		return err
	}
	from, err := d.ctx.whose(src, n)
	if err != nil || n == 0 {
		return err
	}
	if to != nil && from != nil && (to != d.ctx || from != d.ctx) {
		return d.copyPeer(dst, to, src, from, n, s)
	}
	if err := errors.Join(d.ctx.mayTouch(to, dst), d.ctx.mayTouch(from, src)); err != nil {
		return err
	}
	if r := cudadrv.Copy(d.ctx.handle, uintptr(dst), uintptr(src), n, uintptr(s)); r != cudadrv.Success {
		return d.ctx.failRange("cuMemcpyAsync", r, fmt.Sprintf("%d bytes from %v to %v, %s", n, src, dst, stream(s)))
	}
	return nil
}

// CopyIn implements Driver. The driver has read ordinary memory, such as Go's
// heap, when its call returns. It may read page-locked memory later, and all
// memory on computers whose GPU reads it in place: there, CopyIn waits for the
// stream.
func (d *driver) CopyIn(dst Ptr, src []byte, s StreamHandle) error {
	n := int64(len(src))
	if err := d.checkWork(s, dst, n); err != nil || n == 0 {
		return err
	}
	if r := cudadrv.CopyIn(d.ctx.handle, uintptr(dst), src, uintptr(s), d.waitCopyIn); r != cudadrv.Success {
		return d.ctx.failRange("cuMemcpyHtoDAsync", r, fmt.Sprintf("%d bytes to %v, %s", n, dst, stream(s)))
	}
	return nil
}

// CopyOut implements Driver.
func (d *driver) CopyOut(dst []byte, src Ptr, s StreamHandle) error {
	n := int64(len(dst))
	if err := d.checkWork(s, src, n); err != nil || n == 0 {
		return err
	}
	if r := cudadrv.CopyOut(d.ctx.handle, dst, uintptr(src), uintptr(s)); r != cudadrv.Success {
		return d.ctx.failRange("cuMemcpyDtoHAsync", r, fmt.Sprintf("%d bytes from %v, %s", n, src, stream(s)))
	}
	return nil
}

// Memset implements Driver.
func (d *driver) Memset(dst Ptr, value byte, n int64, s StreamHandle) error {
	if err := d.checkWork(s, dst, n); err != nil || n == 0 {
		return err
	}
	if r := cudadrv.Memset(d.ctx.handle, uintptr(dst), value, n, uintptr(s)); r != cudadrv.Success {
		return d.ctx.failRange("cuMemsetD8Async", r, fmt.Sprintf("%d bytes at %v, %s", n, dst, stream(s)))
	}
	return nil
}

// checkWork returns nil when the Driver is usable and work on s may touch
// the n bytes at p.
func (d *driver) checkWork(s StreamHandle, p Ptr, n int64) error {
	if err := d.on(s); err != nil {
		return err
	}
	return d.ctx.checkRange(p, n)
}
