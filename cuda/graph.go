package cuda

import (
	"github.com/cupool/cupool/internal/cudadrv"
)

// The methods that cupool.Engine.Capture asks of a device.

// BeginCapture makes s record its work instead of running it. The capture is in
// relaxed mode, so that calls of other goroutines do not break it.
func (d *driver) BeginCapture(s StreamHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	if r := cudadrv.StreamBeginCapture(d.ctx.handle, uintptr(s)); r != cudadrv.Success {
		return d.ctx.fail("cuStreamBeginCapture", r, stream(s))
	}
	return nil
}

// EndCapture returns the graph. The capture is over in any case.
func (d *driver) EndCapture(s StreamHandle) (uintptr, error) {
	exec, r := cudadrv.StreamInstantiate(d.ctx.handle, uintptr(s))
	switch r {
	case cudadrv.Success:
		return exec, nil
	case cudadrv.Missing:
		d.DropCapture(s)
		return 0, d.ctx.fail("cuGraphInstantiateWithFlags", r, stream(s))
	}
	return 0, d.ctx.fail("cuStreamEndCapture", r, stream(s))
}

// DropCapture ends a capture without a graph. The error is dropped: a capture
// that went wrong fails to end, too.
func (d *driver) DropCapture(s StreamHandle) {
	_ = cudadrv.StreamDropCapture(d.ctx.handle, uintptr(s))
}

// LaunchGraph submits a graph to s.
func (d *driver) LaunchGraph(graph uintptr, s StreamHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	if r := cudadrv.GraphLaunch(d.ctx.handle, graph, uintptr(s)); r != cudadrv.Success {
		return d.ctx.fail("cuGraphLaunch", r, stream(s))
	}
	return nil
}

// DestroyGraph gives a graph back.
func (d *driver) DestroyGraph(graph uintptr) error {
	if err := d.usable(); err != nil {
		return err
	}
	if r := cudadrv.GraphDestroy(d.ctx.handle, graph); r != cudadrv.Success {
		return d.ctx.fail("cuGraphExecDestroy", r, "")
	}
	return nil
}
