//go:build gpu

package cupool

import (
	"fmt"

	"github.com/cupool/cupool/internal/cudadrv"
)

// Copy implements Driver. Either side may be any memory that CUDA knows.
func (d *cudaDriver) Copy(dst, src Ptr, n int64, s StreamHandle) error {
	if err := d.checkWork(s, dst, n); err != nil {
		return err
	}
	if err := d.ctx.checkRange(src, n); err != nil || n == 0 {
		return err
	}
	if r := cudadrv.Copy(d.ctx.handle, uintptr(dst), uintptr(src), n, uintptr(s)); r != cudadrv.Success {
		return d.ctx.failRange("cuMemcpyAsync", r, fmt.Sprintf("%d bytes from %v to %v, %s", n, src, dst, stream(s)))
	}
	return nil
}

// CopyIn implements Driver. From ordinary memory, such as Go's heap, the
// driver has read src when its call returns. From page-locked memory, and on
// computers whose GPU reads ordinary memory in place, it may not have, and
// CopyIn waits for the stream; Copy between addresses does not.
func (d *cudaDriver) CopyIn(dst Ptr, src []byte, s StreamHandle) error {
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
func (d *cudaDriver) CopyOut(dst []byte, src Ptr, s StreamHandle) error {
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
func (d *cudaDriver) Memset(dst Ptr, value byte, n int64, s StreamHandle) error {
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
func (d *cudaDriver) checkWork(s StreamHandle, p Ptr, n int64) error {
	if err := d.usable(); err != nil {
		return err
	}
	if err := d.checkStream(s); err != nil {
		return err
	}
	return d.ctx.checkRange(p, n)
}
