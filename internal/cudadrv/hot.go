package cudadrv

import (
	"unsafe"

	"github.com/cupool/cupool/internal/clib"
)

// The calls that are made for every operation. They allocate nothing.

// EventRecord is cuEventRecord.
func EventRecord(ctx, event, stream uintptr) Result {
	return call(ctx, fns.eventRecord, event, stream)
}

// EventQuery is cuEventQuery: Success or NotReady when nothing is wrong.
func EventQuery(ctx, event uintptr) Result { return call(ctx, fns.eventQuery, event) }

// EventQueryAll makes cuEventQuery of each event up to the first that is not done, in
// one crossing. It returns how many are done; the result is that of a query that
// failed.
func EventQueryAll(ctx uintptr, events []uintptr) (done int, r Result) {
	if len(events) == 0 {
		return 0, Success
	}
	s := [1]clib.Step{{Fn: fns.eventQuery, N: 1, List: &events[0], Count: len(events)}}
	if r = run(ctx, s[:]); r == NotReady {
		r = Success
	}
	return s[0].Done, r
}

// EventSync is cuEventSynchronize.
func EventSync(ctx, event uintptr) Result { return call(ctx, fns.eventSynchronize, event) }

// StreamWaitEvent is cuStreamWaitEvent.
func StreamWaitEvent(ctx, stream, event uintptr) Result {
	return call(ctx, fns.streamWaitEvent, stream, event, 0)
}

// StreamSync is cuStreamSynchronize.
func StreamSync(ctx, stream uintptr) Result { return call(ctx, fns.streamSynchronize, stream) }

// Copy is cuMemcpyAsync, which finds out from the addresses where each of them lies.
func Copy(ctx, dst, src uintptr, n int64, stream uintptr) Result {
	return call(ctx, fns.memcpyAsync, dst, src, uintptr(n), stream)
}

// Memset is cuMemsetD8Async.
func Memset(ctx, dst uintptr, value byte, n int64, stream uintptr) Result {
	return call(ctx, fns.memsetD8Async, dst, uintptr(value), uintptr(n), stream)
}

// CopyIn is cuMemcpyHtoDAsync. src is not empty. It may be reused when CopyIn
// returns: CopyIn waits for the stream when the driver might read src later, or
// when wait is set.
func CopyIn(ctx, dst uintptr, src []byte, stream uintptr, wait bool) Result {
	return copyIn(ctx, dst, uintptr(unsafe.Pointer(&src[0])), len(src), stream, wait)
}

//go:uintptrescapes
func copyIn(ctx, dst, src uintptr, n int, stream uintptr, wait bool) Result {
	var s [2]clib.Step
	s[0].Set(fns.memcpyHtoDAsync, dst, src, uintptr(n), stream)
	if wait || fns.pointerGetAttributes == 0 {
		s[1].Set(fns.streamSynchronize, stream)
	} else {
		askPageLocked(&s[1], src)
	}
	r := run(ctx, s[:])
	if r == InvalidValue { // a pool in host memory is no device
		s[0].Fn = fns.memcpyAsync
		s[1] = clib.StepOf(fns.streamSynchronize, stream)
		r = run(ctx, s[:])
	}
	if r == Success && s[1].Ignore && (s[1].Err() != 0 || s[1].Value(0) != 0) {
		r = StreamSync(ctx, stream)
	}
	return r
}

// askPageLocked sets the call that asks whether the driver copies straight from p, that
// is, possibly after cuMemcpyHtoDAsync has returned: then it fails, or its value is not
// 0. Other host memory the driver copies into a buffer of its own before it returns.
func askPageLocked(s *clib.Step, p uintptr) {
	const memoryType = 2 // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
	s.Set(fns.pointerGetAttributes, 1, 0, 0, p)
	const attributes, to = 4, 5 // behind the arguments
	s.Args[attributes] = memoryType
	s.Point(1, attributes)
	s.Point(2, to)
	s.Out(to, 0)
	s.Ignore = true
}

// CopyOut is cuMemcpyDtoHAsync and cuStreamSynchronize. dst is not empty.
func CopyOut(ctx uintptr, dst []byte, src, stream uintptr) Result {
	return copyOut(ctx, uintptr(unsafe.Pointer(&dst[0])), src, len(dst), stream)
}

//go:uintptrescapes
func copyOut(ctx, dst, src uintptr, n int, stream uintptr) Result {
	var s [2]clib.Step
	s[0].Set(fns.memcpyDtoHAsync, dst, src, uintptr(n), stream)
	s[1].Set(fns.streamSynchronize, stream)
	r := run(ctx, s[:])
	if r == InvalidValue { // a pool in host memory is no device
		s[0].Fn = fns.memcpyAsync
		r = run(ctx, s[:])
	}
	return r
}
