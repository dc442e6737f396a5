package cuda

import (
	"fmt"

	"github.com/cupool/cupool/internal/cudadrv"
)

// Prefetch implements ManagedHints.
func (d *driver) Prefetch(p Ptr, n int64, to Location, s StreamHandle) error {
	if err := d.checkWork(s, p, n); err != nil {
		return err
	}
	if r := cudadrv.Prefetch(d.ctx.handle, uintptr(p), n, int(to.Kind), to.ID, uintptr(s)); r != cudadrv.Success {
		return d.ctx.fail("cuMemPrefetchAsync", r, fmt.Sprintf("%d bytes at %v to %+v, %s", n, p, to, stream(s)))
	}
	return nil
}

// Advise implements ManagedHints.
func (d *driver) Advise(p Ptr, n int64, a Advice, at Location) error {
	if err := d.checkWork(0, p, n); err != nil {
		return err
	}
	if r := cudadrv.Advise(d.ctx.handle, uintptr(p), n, int(a), int(at.Kind), at.ID); r != cudadrv.Success {
		return d.ctx.fail("cuMemAdvise", r, fmt.Sprintf("advice %d, %d bytes at %v, %+v", a, n, p, at))
	}
	return nil
}
