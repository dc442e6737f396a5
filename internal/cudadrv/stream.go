package cudadrv

import (
	"unsafe"

	"github.com/cupool/cupool/internal/clib"
)

// What can be asked about streams and addresses, captures of streams, and graphs.

// StreamCtx is cuStreamGetCtx.
func StreamCtx(ctx, stream uintptr) (uintptr, Result) {
	return value(ctx, fns.streamGetCtx, 1, stream, 0)
}

// StreamID is cuStreamGetId.
func StreamID(ctx, stream uintptr) (uint64, Result) {
	id, r := value(ctx, fns.streamGetId, 1, stream, 0)
	return uint64(id), r
}

// Capture says whether a stream's work is being captured into a graph.
type Capture int

// The values of CUstreamCaptureStatus.
const (
	NotCapturing Capture = iota
	Capturing
	CaptureInvalidated
)

// StreamCapture is cuStreamGetCaptureInfo. id is the capture's number, unique
// in the process, or 0 when there is none.
func StreamCapture(ctx, stream uintptr) (c Capture, id uint64, r Result) {
	if fns.streamGetCaptureInfo == 0 {
		return 0, 0, Missing
	}
	s := [1]clib.Step{clib.StepOf(fns.streamGetCaptureInfo, stream, 0, 0)}
	s[0].Out(1, 0)
	s[0].Out(2, 1)
	r = run(ctx, s[:])
	if c = Capture(s[0].Value(0)); c == Capturing {
		id = uint64(s[0].Value(1))
	}
	return c, id, r
}

// StreamBeginCapture is cuStreamBeginCapture in relaxed mode.
func StreamBeginCapture(ctx, stream uintptr) Result {
	const relaxed = 2 // CU_STREAM_CAPTURE_MODE_RELAXED
	return call(ctx, fns.streamBeginCapture, stream, relaxed)
}

// StreamDropCapture is cuStreamEndCapture, and destroys the graph.
func StreamDropCapture(ctx, stream uintptr) Result {
	graph, r := value(ctx, fns.streamEndCapture, 1, stream, 0)
	if r != Success || graph == 0 {
		return r
	}
	return call(ctx, fns.graphDestroy, graph)
}

// StreamInstantiate is cuStreamEndCapture, cuGraphInstantiateWithFlags and,
// where there is one, cuGraphUpload. It returns what GraphLaunch runs. It is
// Missing before CUDA 11.4.
func StreamInstantiate(ctx, stream uintptr) (exec uintptr, r Result) {
	if fns.graphInstantiate == 0 {
		return 0, Missing
	}
	graph, r := value(ctx, fns.streamEndCapture, 1, stream, 0)
	switch {
	case r != Success:
		return 0, r
	case graph == 0:
		return 0, CaptureWasInvalidated
	}
	exec, r = value(ctx, fns.graphInstantiate, 0, 0, graph, 0)
	dropped := call(ctx, fns.graphDestroy, graph)
	if r != Success || fns.graphUpload == 0 {
		return exec, max(r, dropped)
	}
	// Else the first launch would do that, and the device wait for it.
	if r = call(ctx, fns.graphUpload, exec, stream); r != Success {
		_ = GraphDestroy(ctx, exec)
	}
	return exec, r
}

// GraphLaunch is cuGraphLaunch.
func GraphLaunch(ctx, exec, stream uintptr) Result { return call(ctx, fns.graphLaunch, exec, stream) }

// GraphDestroy is cuGraphExecDestroy.
func GraphDestroy(ctx, exec uintptr) Result { return call(ctx, fns.graphExecDestroy, exec) }

// PointerInfo is what the driver knows of an address.
type PointerInfo struct {
	Known   bool // memory of CUDA: device, managed, pinned or registered
	Host    bool // pinned or registered host memory
	Managed bool
	Device  int // ordinal
	Start   uintptr
	Size    int64 // bytes of the allocation or mapping around it
}

// Pointer is cuPointerGetAttributes. An address that CUDA does not know is no
// error.
func Pointer(ctx, p uintptr) (PointerInfo, Result) {
	const (
		memoryType, ordinal, isManaged, start, size = 2, 9, 8, 11, 12 // CU_POINTER_ATTRIBUTE_...
		host                                        = 1               // CU_MEMORYTYPE_HOST
	)
	x := clib.OnHeap(struct {
		attributes [5]uint32
		to         [5]*uint64
		values     [5]uint64
	}{attributes: [5]uint32{memoryType, isManaged, ordinal, start, size}})
	for i := range x.to {
		x.to[i] = &x.values[i]
	}
	r := callGo(ctx, fns.pointerGetAttributes, 5, uintptr(unsafe.Pointer(&x.attributes)), uintptr(unsafe.Pointer(&x.to)), p)
	kind, managed, device := uint32(x.values[0]), x.values[1], int32(x.values[2])
	return PointerInfo{
		Known: kind != 0, Host: kind == host, Managed: managed != 0, Device: int(device),
		Start: uintptr(x.values[3]), Size: int64(x.values[4]),
	}, r
}
