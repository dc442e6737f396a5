//go:build gpu

package cudadrv

/*
#cgo noescape cp_event_query_all
#cgo noescape cp_copy_in
#cgo noescape cp_copy_out
#cgo nocallback cp_event_record
#cgo nocallback cp_event_query
#cgo nocallback cp_event_query_all
#cgo nocallback cp_stream_wait_event
#cgo nocallback cp_copy
#cgo nocallback cp_copy_in
#cgo nocallback cp_copy_out
#cgo nocallback cp_memset
#include "calls.h"
*/
import "C"

import "unsafe"

// EventRecord is cuEventRecord.
func EventRecord(ctx, event, stream uintptr) Result {
	return Result(C.cp_event_record(C.uintptr_t(ctx), C.uintptr_t(event), C.uintptr_t(stream)))
}

// EventQuery is cuEventQuery: Success or NotReady when nothing is wrong.
func EventQuery(ctx, event uintptr) Result {
	return Result(C.cp_event_query(C.uintptr_t(ctx), C.uintptr_t(event)))
}

// EventQueryAll queries events in turn up to the first that is not done, in
// one crossing, and returns how many are.
func EventQueryAll(ctx uintptr, events []uintptr) (done int, r Result) {
	v := C.cp_event_query_all(C.uintptr_t(ctx), (*C.uintptr_t)(unsafe.Pointer(unsafe.SliceData(events))), C.size_t(len(events)))
	return int(v.value), Result(v.err)
}

// EventSync is cuEventSynchronize.
func EventSync(ctx, event uintptr) Result {
	return Result(C.cp_event_sync(C.uintptr_t(ctx), C.uintptr_t(event)))
}

// StreamWaitEvent is cuStreamWaitEvent.
func StreamWaitEvent(ctx, stream, event uintptr) Result {
	return Result(C.cp_stream_wait_event(C.uintptr_t(ctx), C.uintptr_t(stream), C.uintptr_t(event)))
}

// StreamSync is cuStreamSynchronize.
func StreamSync(ctx, stream uintptr) Result {
	return Result(C.cp_stream_sync(C.uintptr_t(ctx), C.uintptr_t(stream)))
}

// Copy is cuMemcpyAsync.
func Copy(ctx, dst, src uintptr, n int64, stream uintptr) Result {
	return Result(C.cp_copy(C.uintptr_t(ctx), C.uintptr_t(dst), C.uintptr_t(src), C.size_t(n), C.uintptr_t(stream)))
}

// Slices that programs bring may lie in Go objects with pointers. cgo checks
// the elements of a slice alone when the argument has the form &slice[0]. With
// unsafe.SliceData it looks for pointers in the whole object.

// CopyIn is cuMemcpyHtoDAsync. src is not empty. It may be reused when CopyIn
// returns: CopyIn waits for the stream when the driver might read src later, or
// when wait is set.
func CopyIn(ctx, dst uintptr, src []byte, stream uintptr, wait bool) Result {
	w := C.int(0)
	if wait {
		w = 1
	}
	return Result(C.cp_copy_in(C.uintptr_t(ctx), C.uintptr_t(dst), unsafe.Pointer(&src[0]), C.size_t(len(src)), C.uintptr_t(stream), w))
}

// CopyOut is cuMemcpyDtoHAsync and cuStreamSynchronize. dst is not empty.
func CopyOut(ctx uintptr, dst []byte, src, stream uintptr) Result {
	return Result(C.cp_copy_out(C.uintptr_t(ctx), unsafe.Pointer(&dst[0]), C.uintptr_t(src), C.size_t(len(dst)), C.uintptr_t(stream)))
}

// Memset is cuMemsetD8Async.
func Memset(ctx, dst uintptr, value byte, n int64, stream uintptr) Result {
	return Result(C.cp_memset(C.uintptr_t(ctx), C.uintptr_t(dst), C.uchar(value), C.size_t(n), C.uintptr_t(stream)))
}
