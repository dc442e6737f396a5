//go:build gpu

package cupool

import (
	"github.com/cupool/cupool/internal/cudadrv"
)

var _ grapher = (*cudaDriver)(nil)

// beginCapture implements grapher. In relaxed mode, what other goroutines do
// meanwhile does not break the capture.
func (d *cudaDriver) beginCapture(s StreamHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	if r := cudadrv.StreamBeginCapture(d.ctx.handle, uintptr(s)); r != cudadrv.Success {
		return d.ctx.fail("cuStreamBeginCapture", r, stream(s))
	}
	return nil
}

// endCapture implements grapher.
func (d *cudaDriver) endCapture(s StreamHandle) (uintptr, error) {
	exec, r := cudadrv.StreamInstantiate(d.ctx.handle, uintptr(s))
	switch r {
	case cudadrv.Success:
		return exec, nil
	case cudadrv.Missing:
		d.dropCapture(s)
		return 0, d.ctx.fail("cuGraphInstantiateWithFlags", r, stream(s))
	}
	return 0, d.ctx.fail("cuStreamEndCapture", r, stream(s))
}

// dropCapture implements grapher. A capture that went wrong says so again.
func (d *cudaDriver) dropCapture(s StreamHandle) {
	_ = cudadrv.StreamDropCapture(d.ctx.handle, uintptr(s))
}

// launchGraph implements grapher.
func (d *cudaDriver) launchGraph(graph uintptr, s StreamHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	if r := cudadrv.GraphLaunch(d.ctx.handle, graph, uintptr(s)); r != cudadrv.Success {
		return d.ctx.fail("cuGraphLaunch", r, stream(s))
	}
	return nil
}

// destroyGraph implements grapher.
func (d *cudaDriver) destroyGraph(graph uintptr) error {
	if err := d.usable(); err != nil {
		return err
	}
	if r := cudadrv.GraphDestroy(d.ctx.handle, graph); r != cudadrv.Success {
		return d.ctx.fail("cuGraphExecDestroy", r, "")
	}
	return nil
}
