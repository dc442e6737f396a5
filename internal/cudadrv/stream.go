//go:build gpu

package cudadrv

/*
#include "calls.h"
*/
import "C"

// StreamCtx is cuStreamGetCtx.
func StreamCtx(ctx, stream uintptr) (uintptr, Result) {
	return value(C.cp_stream_ctx(C.uintptr_t(ctx), C.uintptr_t(stream)))
}

// StreamID is cuStreamGetId.
func StreamID(ctx, stream uintptr) (uint64, Result) {
	v := C.cp_stream_id(C.uintptr_t(ctx), C.uintptr_t(stream))
	return uint64(v.value), Result(v.err)
}

// Capture says whether a stream's work is being captured into a graph.
type Capture int

// The values of CUstreamCaptureStatus.
const (
	NotCapturing       Capture = C.CU_STREAM_CAPTURE_STATUS_NONE
	Capturing          Capture = C.CU_STREAM_CAPTURE_STATUS_ACTIVE
	CaptureInvalidated Capture = C.CU_STREAM_CAPTURE_STATUS_INVALIDATED
)

// StreamCapturing is cuStreamIsCapturing.
func StreamCapturing(ctx, stream uintptr) (Capture, Result) {
	v := C.cp_stream_capturing(C.uintptr_t(ctx), C.uintptr_t(stream))
	return Capture(v.value), Result(v.err)
}

// StreamCapture is cuStreamGetCaptureInfo. id is the capture's number, unique
// in the process, or 0 when there is none.
func StreamCapture(ctx, stream uintptr) (c Capture, id uint64, r Result) {
	v := C.cp_stream_capture(C.uintptr_t(ctx), C.uintptr_t(stream))
	return Capture(v.status), uint64(v.id), Result(v.err)
}

// StreamBeginCapture is cuStreamBeginCapture in relaxed mode.
func StreamBeginCapture(ctx, stream uintptr) Result {
	return Result(C.cp_stream_begin_capture(C.uintptr_t(ctx), C.uintptr_t(stream)))
}

// StreamDropCapture is cuStreamEndCapture, and destroys the graph.
func StreamDropCapture(ctx, stream uintptr) Result {
	return Result(C.cp_stream_end_capture(C.uintptr_t(ctx), C.uintptr_t(stream)))
}

// StreamInstantiate is cuStreamEndCapture, cuGraphInstantiateWithFlags and,
// where there is one, cuGraphUpload. It returns what GraphLaunch runs. It is
// Missing before CUDA 11.4.
func StreamInstantiate(ctx, stream uintptr) (exec uintptr, r Result) {
	return value(C.cp_stream_instantiate(C.uintptr_t(ctx), C.uintptr_t(stream)))
}

// GraphLaunch is cuGraphLaunch.
func GraphLaunch(ctx, exec, stream uintptr) Result {
	return Result(C.cp_graph_launch(C.uintptr_t(ctx), C.uintptr_t(exec), C.uintptr_t(stream)))
}

// GraphDestroy is cuGraphExecDestroy.
func GraphDestroy(ctx, exec uintptr) Result {
	return Result(C.cp_graph_destroy(C.uintptr_t(ctx), C.uintptr_t(exec)))
}

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
	i := C.cp_pointer_info(C.uintptr_t(ctx), C.uintptr_t(p))
	return PointerInfo{
		Known: i._type != 0, Host: i._type == C.CU_MEMORYTYPE_HOST, Managed: i.managed != 0,
		Device: int(i.device), Start: uintptr(i.start), Size: int64(i.size),
	}, Result(i.err)
}
