//go:build cu

package cudadrv

import (
	"errors"
	"runtime"
	"unsafe"

	"gorgonia.org/cu"
)

// The calls of device.go by gorgonia.org/cu. Each takes a locked thread
// and two crossings, or four when the context is not current. cu.Ctx.Do hops to another
// thread; it is used nowhere.
//
// cu's handle types are structs of one C pointer that it keeps to itself, so
// they are converted by their memory.

// ContextHandle returns the handle of a context of cu.
func ContextHandle(ctx cu.CUContext) uintptr { return *(*uintptr)(unsafe.Pointer(&ctx)) }

// StreamHandle returns the handle of a stream of cu.
func StreamHandle(s cu.Stream) uintptr { return *(*uintptr)(unsafe.Pointer(&s)) }

// EventHandle returns the handle of an event of cu.
func EventHandle(e cu.Event) uintptr { return *(*uintptr)(unsafe.Pointer(&e)) }

// StreamOf returns the stream of cu with a handle.
func StreamOf(h uintptr) cu.Stream { return *(*cu.Stream)(unsafe.Pointer(&h)) }

// EventOf returns the event of cu with a handle.
func EventOf(h uintptr) cu.Event { return *(*cu.Event)(unsafe.Pointer(&h)) }

func contextOf(h uintptr) cu.CUContext { return *(*cu.CUContext)(unsafe.Pointer(&h)) }

func moduleOf(h uintptr) cu.Module { return *(*cu.Module)(unsafe.Pointer(&h)) }

// These fail to compile when a cu type is no longer one pointer.
var (
	_ [unsafe.Sizeof(uintptr(0))]struct{} = [unsafe.Sizeof(cu.CUContext{})]struct{}{}
	_ [unsafe.Sizeof(uintptr(0))]struct{} = [unsafe.Sizeof(cu.Stream{})]struct{}{}
	_ [unsafe.Sizeof(uintptr(0))]struct{} = [unsafe.Sizeof(cu.Event{})]struct{}{}
	_ [unsafe.Sizeof(uintptr(0))]struct{} = [unsafe.Sizeof(cu.Module{})]struct{}{}
	_ [unsafe.Sizeof(uintptr(0))]struct{} = [unsafe.Sizeof(cu.Function{})]struct{}{}
)

// In runs f, which makes calls of cu, with the context current on a locked
// thread, and restores the context that a program had set there. A thread
// that had none keeps this one.
func In(context uintptr, f func() error) Result {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := cu.CurrentContext()
	if err != nil {
		return result(err)
	}
	if h := ContextHandle(before); h != context {
		if err := cu.SetCurrentContext(contextOf(context)); err != nil {
			return result(err)
		}
		if h != 0 {
			defer func() { _ = cu.SetCurrentContext(before) }()
		}
	}
	return result(f())
}

// valueOf is In for a call that returns a value.
func valueOf[T any](context uintptr, f func() (T, error)) (v T, r Result) {
	r = In(context, func() (err error) {
		v, err = f()
		return err
	})
	return v, r
}

// cuValue returns a value of cu with the CUresult inside its error.
func cuValue[T any](v T, err error) (T, Result) { return v, result(err) }

// result returns the CUresult inside an error of cu. Its type is not
// exported, but a constant of it says which it is.
func result(err error) Result {
	if err == nil {
		return Success
	}
	return resultOf(cu.Success, err)
}

func resultOf[T interface {
	~int
	error
}](_ T, err error) Result {
	var code T
	if errors.As(err, &code) {
		return Result(code)
	}
	return Result(cu.Unknown)
}

// DeviceCount is cuDeviceGetCount.
func DeviceCount() (int, Result) { return cuValue(cu.NumDevices()) }

// Device is cuDeviceGet.
func Device(ordinal int) (device int, r Result) {
	d, r := cuValue(cu.GetDevice(ordinal))
	return int(d), r
}

// DeviceName is cuDeviceGetName.
func DeviceName(device int) (string, Result) {
	return cuValue(cu.Device(device).Name())
}

// DeviceUUID is cuDeviceGetUuid, as text without a prefix.
func DeviceUUID(device int) (string, Result) {
	u, r := cuValue(cu.Device(device).UUID())
	return u.String(), r
}

// DeviceMemory is cuDeviceTotalMem, in bytes.
func DeviceMemory(device int) (int64, Result) {
	return cuValue(cu.Device(device).TotalMem())
}

// DeviceAttribute is cuDeviceGetAttribute.
func DeviceAttribute(device, attribute int) (int, Result) {
	return cuValue(cu.Device(device).Attribute(cu.DeviceAttribute(attribute)))
}

// RetainPrimary is cuDevicePrimaryCtxRetain.
func RetainPrimary(device int) (ctx uintptr, r Result) {
	c, r := cuValue(cu.Device(device).RetainPrimaryCtx())
	return ContextHandle(c), r
}

// ReleasePrimary is cuDevicePrimaryCtxRelease.
func ReleasePrimary(device int) Result {
	return result(cu.Device(device).ReleasePrimaryCtx())
}

// CurrentContext is cuCtxGetCurrent: the calling thread's, or 0.
func CurrentContext() (ctx uintptr, r Result) {
	c, r := cuValue(cu.CurrentContext())
	return ContextHandle(c), r
}

// ContextDevice is cuCtxGetDevice.
func ContextDevice(ctx uintptr) (device int, r Result) {
	d, r := valueOf(ctx, cu.CurrentDevice)
	return int(d), r
}

// Synchronize is cuCtxSynchronize: it waits for all work in the context.
func Synchronize(ctx uintptr) Result { return In(ctx, cu.Synchronize) }

// MemAlloc is cuMemAlloc.
func MemAlloc(ctx uintptr, size int64) (p uintptr, r Result) {
	q, r := valueOf(ctx, func() (cu.DevicePtr, error) { return cu.MemAlloc(size) })
	return uintptr(q), r
}

// MemAllocManaged is cuMemAllocManaged for all streams.
func MemAllocManaged(ctx uintptr, size int64) (p uintptr, r Result) {
	q, r := valueOf(ctx, func() (cu.DevicePtr, error) { return cu.MemAllocManaged(size, cu.AttachGlobal) })
	return uintptr(q), r
}

// MemFree is cuMemFree of what MemAlloc and MemAllocManaged returned.
func MemFree(ctx, p uintptr) Result {
	return In(ctx, func() error { return cu.MemFree(cu.DevicePtr(p)) })
}

// HostFree is cuMemFreeHost.
func HostFree(ctx, p uintptr) Result {
	return In(ctx, func() error { return cu.MemFreeHost(*(*unsafe.Pointer)(unsafe.Pointer(&p))) })
}

// MemInfo is cuMemGetInfo, in bytes.
func MemInfo(ctx uintptr) (free, total int64, r Result) {
	r = In(ctx, func() (err error) {
		free, total, err = cu.MemInfo()
		return err
	})
	return free, total, r
}

// NewStream is cuStreamCreate of a stream that does not wait for the null
// stream, nor the null stream for it.
func NewStream(ctx uintptr) (stream uintptr, r Result) {
	s, r := valueOf(ctx, func() (cu.Stream, error) { return cu.MakeStream(cu.NonBlocking) })
	return StreamHandle(s), r
}

// DestroyStream is cuStreamDestroy.
func DestroyStream(ctx, stream uintptr) Result {
	return In(ctx, func() error {
		s := StreamOf(stream)
		return s.Destroy()
	})
}

// NewEvent is cuEventCreate without timing.
func NewEvent(ctx uintptr) (event uintptr, r Result) {
	e, r := valueOf(ctx, func() (cu.Event, error) { return cu.MakeEvent(cu.DisableTiming) })
	return EventHandle(e), r
}

// DestroyEvent is cuEventDestroy.
func DestroyEvent(ctx, event uintptr) Result {
	return In(ctx, func() error {
		e := EventOf(event)
		return cu.DestroyEvent(&e)
	})
}

// ModuleLoad is cuModuleLoadData. The image is SASS, or PTX with a 0 at its end. It loads
// also while the calling thread captures a stream: what it does is done at once, and no
// part of the graph.
func ModuleLoad(ctx uintptr, image []byte) (module uintptr, r Result) {
	m, r := valueOf(ctx, func() (cu.Module, error) {
		mode := uint32(2) // CU_STREAM_CAPTURE_MODE_RELAXED
		exchange := func() { _ = bareGo(fns.threadExchangeStreamCaptureMode, uintptr(unsafe.Pointer(&mode))) }
		exchange()
		defer exchange()
		return cu.LoadData(string(image))
	})
	return *(*uintptr)(unsafe.Pointer(&m)), r
}

// ModuleUnload is cuModuleUnload.
func ModuleUnload(ctx, module uintptr) Result { return In(ctx, moduleOf(module).Unload) }

// ModuleFunction is cuModuleGetFunction.
func ModuleFunction(ctx, module uintptr, name string) (function uintptr, r Result) {
	f, r := valueOf(ctx, func() (cu.Function, error) { return moduleOf(module).Function(name) })
	return *(*uintptr)(unsafe.Pointer(&f)), r
}

// CanAccessPeer is cuDeviceCanAccessPeer of two devices by ordinal.
func CanAccessPeer(ctx uintptr, device, peer int) (bool, Result) {
	can, r := valueOf(ctx, func() (int, error) { return cu.Device(device).CanAccessPeer(cu.Device(peer)) })
	return can != 0, r
}

// EnablePeer is cuCtxEnablePeerAccess: work in ctx may touch what cuMemAlloc
// returns in peer.
func EnablePeer(ctx, peer uintptr) Result {
	return In(ctx, func() error { return contextOf(peer).EnablePeerAccess(0) })
}

// DisablePeer is cuCtxDisablePeerAccess.
func DisablePeer(ctx, peer uintptr) Result { return In(ctx, contextOf(peer).DisablePeerAccess) }
