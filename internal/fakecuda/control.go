//go:build gpu

package fakecuda

/*
#cgo linux LDFLAGS: -ldl
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdlib.h>

static int loaded(void) { return dlsym(RTLD_DEFAULT, "fakecuda_fail") != NULL; }

static void fail(const char *call, int nth, int code, int times) {
	void (*f)(const char *, int, int, int) = dlsym(RTLD_DEFAULT, "fakecuda_fail");
	if (f != NULL)
		f(call, nth, code, times);
}

static void reset(void) {
	void (*f)(void) = dlsym(RTLD_DEFAULT, "fakecuda_reset");
	if (f != NULL)
		f();
}

static void set_memory(int device, size_t bytes) {
	void (*f)(int, size_t) = dlsym(RTLD_DEFAULT, "fakecuda_set_memory");
	if (f != NULL)
		f(device, bytes);
}

static void delay(unsigned us) {
	void (*f)(unsigned) = dlsym(RTLD_DEFAULT, "fakecuda_delay");
	if (f != NULL)
		f(us);
}

static void count(int on) {
	void (*f)(int) = dlsym(RTLD_DEFAULT, "fakecuda_count");
	if (f != NULL)
		f(on);
}

static void host_memory(size_t *free, size_t *total) {
	void (*f)(size_t *, size_t *) = dlsym(RTLD_DEFAULT, "fakecuda_host_memory");
	if (f != NULL)
		f(free, total);
}

static unsigned long calls(const char *call) {
	unsigned long (*f)(const char *) = dlsym(RTLD_DEFAULT, "fakecuda_calls");
	return f != NULL ? f(call) : 0;
}
*/
import "C"

import (
	"time"
	"unsafe"
)

// Loaded reports whether this process runs on the stand-in.
func Loaded() bool { return C.loaded() != 0 }

// Fail makes the nth call from now (1: the next) of the named entry point
// fail with the CUresult code, and the times-1 calls after it. The names are
// the library's, such as cuMemAlloc_v2; those of NCCL, such as ncclAllReduce, fail
// with the ncclResult_t code. A code that means a lost context makes it lost.
func Fail(call string, nth, code, times int) {
	s := C.CString(call)
	defer C.free(unsafe.Pointer(s))
	C.fail(s, C.int(nth), C.int(code), C.int(times))
}

// Reset forgets all faults, delays and counts.
func Reset() { C.reset() }

// SetMemory sets a device's memory in bytes.
func SetMemory(device int, bytes int64) { C.set_memory(C.int(device), C.size_t(bytes)) }

// Delay makes every piece of work on a stream take at least d.
func Delay(d time.Duration) { C.delay(C.uint(d.Microseconds())) }

// Count starts counting calls, from 0, or stops.
func Count(on bool) {
	if on {
		C.count(1)
	} else {
		C.count(0)
	}
}

// Calls returns how often the named entry point was called since Count.
func Calls(call string) int {
	s := C.CString(call)
	defer C.free(unsafe.Pointer(s))
	return int(C.calls(s))
}

// HostMemory returns how many bytes may still be pinned, and in all. The
// error is always nil.
func HostMemory() (free, total int64, err error) {
	var f, t C.size_t
	C.host_memory(&f, &t)
	return int64(f), int64(t), nil
}
