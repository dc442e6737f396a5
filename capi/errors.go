package main

// #include "internal.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"runtime/debug"
	"unsafe"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/device"
)

// fault is an error with a code of its own.
type fault struct {
	code C.cupool_status
	text string
}

func (f *fault) Error() string { return f.text }

func faultf(code C.cupool_status, format string, args ...any) error {
	return &fault{code, fmt.Sprintf("cupool: "+format, args...)}
}

// deinitialized is CUDA_ERROR_DEINITIALIZED: the driver has shut down, as the process ends.
const deinitialized = 4

// codes are the codes of the errors of package cupool. The first that matches counts.
var codes = []struct {
	err  error
	code C.cupool_status
}{
	{cupool.ErrDeviceLost, C.CUPOOL_ERROR_DEVICE_LOST},
	{cupool.ErrOutOfMemory, C.CUPOOL_ERROR_OUT_OF_MEMORY},
	{cupool.ErrInvalidConfig, C.CUPOOL_ERROR_CONFIG},
	{cupool.ErrInteriorPointer, C.CUPOOL_ERROR_INTERIOR_POINTER},
	{cupool.ErrDoubleFree, C.CUPOOL_ERROR_DOUBLE_FREE},
	{cupool.ErrUseAfterFree, C.CUPOOL_ERROR_DOUBLE_FREE},
	{cupool.ErrForeignPointer, C.CUPOOL_ERROR_FOREIGN_POINTER},
	{cupool.ErrForeignStream, C.CUPOOL_ERROR_FOREIGN_STREAM},
	{cupool.ErrAsleep, C.CUPOOL_ERROR_ASLEEP},
	{cupool.ErrClosed, C.CUPOOL_ERROR_CLOSED},
	{context.DeadlineExceeded, C.CUPOOL_ERROR_TIMEOUT},
	{cupool.ErrNotSupported, C.CUPOOL_ERROR_NOT_SUPPORTED},
	{cupool.ErrInvalidRange, C.CUPOOL_ERROR_INVALID},
	{cupool.ErrInvalidSize, C.CUPOOL_ERROR_INVALID},
	{cupool.ErrInvalidHandle, C.CUPOOL_ERROR_INVALID},
}

// codeOf returns the code of an error.
func codeOf(err error) C.cupool_status {
	if f, ok := errors.AsType[*fault](err); ok {
		return f.code
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	if _, ok := errors.AsType[*cuda.Error](err); ok {
		return C.CUPOOL_ERROR_DRIVER
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return C.CUPOOL_ERROR_IO
	}
	if _, ok := errors.AsType[*os.SyscallError](err); ok {
		return C.CUPOOL_ERROR_IO
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return C.CUPOOL_ERROR_IO
	}
	return C.CUPOOL_ERROR_DRIVER
}

// done notes an error for the thread that made the call, and returns its code.
func done(t *C.thread, err error) C.cupool_status {
	if err == nil {
		return C.CUPOOL_OK
	}
	return fail(t, codeOf(err), err.Error())
}

func fail(t *C.thread, code C.cupool_status, text string) C.cupool_status {
	return C.cupool_fail(t, code, (*C.char)(unsafe.Pointer(unsafe.StringData(text))), C.size_t(len(text)))
}

// call is what most exported functions do: it calls f with a device, whose pool it opens where that is not
// open, and tells C of an error.
func call(t *C.thread, ordinal C.int, f func(g *gpu) error) (st C.cupool_status) {
	defer caught(t, &st)
	g, err := of(ordinal)
	if err == nil {
		err = f(g)
	}
	return done(t, err)
}

// caught makes a panic the failure of a call. Each exported function defers it, or goes through call.
func caught(t *C.thread, st *C.cupool_status) {
	if r := recover(); r != nil {
		*st = fail(t, C.CUPOOL_ERROR_INTERNAL, fmt.Sprintf("cupool: internal error: %v\n%s", r, debug.Stack()))
	}
}

// ending reports whether an error says that the driver has shut down.
func ending(err error) bool {
	e, ok := errors.AsType[*cuda.Error](err)
	return ok && e.Code == deinitialized
}

// noDevice says that there is no such device where that is so.
func noDevice(err error) error {
	const invalidDevice, noDevice = 101, 100
	if e, ok := errors.AsType[*cuda.Error](err); ok && (e.Code == invalidDevice || e.Code == noDevice) ||
		errors.Is(err, device.ErrNotSupported) {
		return &fault{C.CUPOOL_ERROR_NO_DEVICE, err.Error()}
	}
	return err
}
