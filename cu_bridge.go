//go:build gpu

// The Driver over CUDA. This file is its border with gorgonia.org/cu: opening
// and closing, device attributes, contexts, memory, and the making of streams
// and events go through cu. The calls that the allocator makes all the time,
// and those that cu lacks, go through internal/cudadrv, which sets the
// context and makes the call in one cgo crossing. With cu that takes a locked
// thread and two crossings, or four when the context is not current. On a
// shared 2-core Xeon without a GPU, over the stand-in driver of
// internal/fakecuda, the best of 60 runs of BenchmarkCrossings: an event
// record 210 ns through cu and 150 ns so (190 ns with the checks of
// RecordEvent), asking 16 events 2.7 µs and, in one crossing, 1.4 µs.
// cu.Ctx.Do, which hops to another thread, costs 18 to 46 µs and is used
// nowhere.
//
// The other files: cu_context.go has what Drivers of one context share,
// cu_driver.go the Driver's opening and closing, cu_memory.go memory, cu_streams.go streams and events, cu_copies.go copies,
// cu_vmm.go virtual memory, cu_pools.go CUDA's own pools, cu_host.go host and
// managed memory and handles for other processes, cu_devices.go reports.

package cupool

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/cupool/cupool/internal/cudadrv"
)

// OpenCUDA opens a GPU by its ordinal, on its primary context, which the CUDA
// runtime, cuBLAS and other libraries use too. Several Drivers of one GPU, of
// the same or other kinds of memory, share the context; each has to be
// closed. It fails with a *CUDAError, or with ErrNotSupported when the GPU
// does not have the kind of memory.
func OpenCUDA(ordinal int, opts ...CUDAOption) (Driver, error) {
	dev, err := cu.GetDevice(ordinal)
	if err != nil {
		n, _ := cu.NumDevices()
		return nil, cuOpenError(ordinal, "cuDeviceGet", fmt.Sprintf("there are %d devices", n), err)
	}
	handle, err := dev.RetainPrimaryCtx()
	if err != nil {
		return nil, cuOpenError(ordinal, "cuDevicePrimaryCtxRetain", "", err)
	}
	c := sharedContext(cuContextHandle(handle), ordinal)
	return openDriver(c, dev.ReleasePrimaryCtx, opts)
}

// OpenCUDAContext opens a GPU over a CUcontext that the program already has,
// and may go on using; 0 is the one that is current on the calling thread,
// which then has to be locked (runtime.LockOSThread). The context stays the
// program's: it must outlive the Driver. Streams of the context can be used
// with the Driver as they are. CUDAContextOf gives the handle of cu's
// contexts.
func OpenCUDAContext(context uintptr, opts ...CUDAOption) (Driver, error) {
	if context == 0 {
		now, err := cu.CurrentContext()
		if err != nil {
			return nil, cuOpenError(-1, "cuCtxGetCurrent", "", err)
		}
		if context = cuContextHandle(now); context == 0 {
			return nil, fmt.Errorf("cupool: opening the current CUDA context: no context is current on this thread")
		}
	}
	var dev cu.Device
	err := cuIn(context, func() (err error) {
		dev, err = cu.CurrentDevice()
		return err
	})
	if err != nil {
		return nil, cuOpenError(-1, "cuCtxGetDevice", fmt.Sprintf("context 0x%x", context), err)
	}
	return openDriver(sharedContext(context, int(dev)), func() error { return nil }, opts)
}

// CUDAContextOf returns the handle of a context of cu, for OpenCUDAContext.
func CUDAContextOf(ctx cu.CUContext) uintptr { return cuContextHandle(ctx) }

// CUDAStreamOf returns the handle of a stream of cu, for AdoptStream.
func CUDAStreamOf(s cu.Stream) StreamHandle { return cuStreamHandle(s) }

// CUDAPtrOf returns an address of cu as a Ptr; cu.DevicePtr(p) is the way
// back.
func CUDAPtrOf(p cu.DevicePtr) Ptr { return Ptr(p) }

// cu's handle types are structs of one C pointer that it keeps to itself, so
// they are converted by their memory.

func cuContextHandle(c cu.CUContext) uintptr  { return *(*uintptr)(unsafe.Pointer(&c)) }
func cuContextOf(h uintptr) cu.CUContext      { return *(*cu.CUContext)(unsafe.Pointer(&h)) }
func cuStreamHandle(s cu.Stream) StreamHandle { return *(*StreamHandle)(unsafe.Pointer(&s)) }
func cuStreamOf(h StreamHandle) cu.Stream     { return *(*cu.Stream)(unsafe.Pointer(&h)) }
func cuEventHandle(e cu.Event) EventHandle    { return *(*EventHandle)(unsafe.Pointer(&e)) }
func cuEventOf(h EventHandle) cu.Event        { return *(*cu.Event)(unsafe.Pointer(&h)) }

// These fail to compile when a cu type is no longer one pointer.
var (
	_ [unsafe.Sizeof(uintptr(0))]struct{} = [unsafe.Sizeof(cu.CUContext{})]struct{}{}
	_ [unsafe.Sizeof(uintptr(0))]struct{} = [unsafe.Sizeof(cu.Stream{})]struct{}{}
	_ [unsafe.Sizeof(uintptr(0))]struct{} = [unsafe.Sizeof(cu.Event{})]struct{}{}
)

// cuIn runs f, which makes calls of cu, with the context current on a locked
// thread, and restores the context that a program had set there. A thread
// that had none keeps this one.
func cuIn(context uintptr, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := cu.CurrentContext()
	if err != nil {
		return err
	}
	if h := cuContextHandle(before); h != context {
		if err := cu.SetCurrentContext(cuContextOf(context)); err != nil {
			return err
		}
		if h != 0 {
			defer func() { _ = cu.SetCurrentContext(before) }()
		}
	}
	return f()
}

// cuResult returns the CUresult inside an error of cu. Its type is not
// exported, but a constant of it says which it is.
func cuResult(err error) cudadrv.Result { return resultOf(cu.Success, err) }

func resultOf[T interface {
	~int
	error
}](_ T, err error) cudadrv.Result {
	var code T
	if errors.As(err, &code) {
		return cudadrv.Result(code)
	}
	return cudadrv.Result(cu.Unknown)
}

// cuOpenError is an error before there is a context. A negative ordinal is
// not known.
func cuOpenError(ordinal int, call, detail string, err error) error {
	c := &cudaContext{device: ordinal}
	return c.fail(call, cuResult(err), detail)
}

// The calls themselves. Each returns a CUresult, which cudaContext.fail turns
// into an error.

func (c *cudaContext) cuCall(f func() error) cudadrv.Result {
	if err := cuIn(c.handle, f); err != nil {
		return cuResult(err)
	}
	return cudadrv.Success
}

func (c *cudaContext) memAlloc(size int64) (p Ptr, r cudadrv.Result) {
	r = c.cuCall(func() error {
		q, err := cu.MemAlloc(size)
		p = Ptr(q)
		return err
	})
	return p, r
}

func (c *cudaContext) memAllocManaged(size int64) (p Ptr, r cudadrv.Result) {
	r = c.cuCall(func() error {
		q, err := cu.MemAllocManaged(size, cu.AttachGlobal)
		p = Ptr(q)
		return err
	})
	return p, r
}

// memFree frees what memAlloc and memAllocManaged returned.
func (c *cudaContext) memFree(p Ptr) cudadrv.Result {
	return c.cuCall(func() error { return cu.MemFree(cu.DevicePtr(p)) })
}

func (c *cudaContext) memInfo() (free, total int64, r cudadrv.Result) {
	r = c.cuCall(func() (err error) {
		free, total, err = cu.MemInfo()
		return err
	})
	return free, total, r
}

// newStream makes a stream that does not wait for the null stream, nor the
// null stream for it.
func (c *cudaContext) newStream() (h StreamHandle, r cudadrv.Result) {
	r = c.cuCall(func() error {
		s, err := cu.MakeStream(cu.NonBlocking)
		h = cuStreamHandle(s)
		return err
	})
	return h, r
}

func (c *cudaContext) destroyStream(h StreamHandle) cudadrv.Result {
	return c.cuCall(func() error {
		s := cuStreamOf(h)
		return s.Destroy()
	})
}

func (c *cudaContext) newEvent() (h EventHandle, r cudadrv.Result) {
	r = c.cuCall(func() error {
		e, err := cu.MakeEvent(cu.DisableTiming)
		h = cuEventHandle(e)
		return err
	})
	return h, r
}

func (c *cudaContext) destroyEvent(h EventHandle) cudadrv.Result {
	return c.cuCall(func() error {
		e := cuEventOf(h)
		return cu.DestroyEvent(&e)
	})
}

// synchronize waits for all work in the context.
func (c *cudaContext) synchronize() cudadrv.Result { return c.cuCall(cu.Synchronize) }

// cuNumDevices, cuName, cuUUID, cuTotal and cuAttribute need no context.

func cuNumDevices() (int, error) { return cu.NumDevices() }

func cuName(ordinal int) (string, error) { return cu.Device(ordinal).Name() }

func cuUUID(ordinal int) string {
	u, err := cu.Device(ordinal).UUID()
	if err != nil {
		return ""
	}
	return "GPU-" + u.String()
}

func cuTotal(ordinal int) (int64, error) { return cu.Device(ordinal).TotalMem() }

// deviceAttribute is a CUdevice_attribute. cu's own list ends with CUDA 10.
type deviceAttribute = cu.DeviceAttribute

const (
	attrMultiprocessors   = cu.MultiprocessorCount
	attrUnifiedAddressing = cu.UnifiedAddressing
	attrMajor             = cu.ComputeCapabilityMajor
	attrMinor             = cu.ComputeCapabilityMinor
	attrManaged           = cu.ManagedMemory
	attrPageableAccess    = cu.PageableMemoryAccess
	attrConcurrentManaged = cu.ConcurrentManagedAccess

	attrHostPageTables deviceAttribute = 100 // PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES
	attrVMM            deviceAttribute = 102 // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
	attrShareFD        deviceAttribute = 103 // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
	attrNativePools    deviceAttribute = 115 // MEMORY_POOLS_SUPPORTED
	attrPoolHandles    deviceAttribute = 119 // MEMPOOL_SUPPORTED_HANDLE_TYPES
	attrIPCEvents      deviceAttribute = 125 // IPC_EVENT_SUPPORTED
	attrShareFabric    deviceAttribute = 128 // HANDLE_TYPE_FABRIC_SUPPORTED
)

// cuAttribute returns 0 for an attribute that the driver does not know.
func cuAttribute(ordinal int, a deviceAttribute) int {
	v, err := cu.Device(ordinal).Attribute(a)
	if err != nil {
		return 0
	}
	return v
}
