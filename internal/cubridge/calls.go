//go:build gpu

package cubridge

import "github.com/cupool/cupool/internal/cudadrv"

// Calls are CUDA's driver calls that go through cu. Every one of them returns
// a CUresult. Those with a context make it current for the call and leave the
// thread as it was. All are safe from several goroutines.
type Calls interface {
	// DeviceCount is cuDeviceGetCount.
	DeviceCount() (int, cudadrv.Result)
	// Device is cuDeviceGet.
	Device(ordinal int) (device int, r cudadrv.Result)
	// DeviceName is cuDeviceGetName.
	DeviceName(device int) (string, cudadrv.Result)
	// DeviceUUID is cuDeviceGetUuid, as text without a prefix.
	DeviceUUID(device int) (string, cudadrv.Result)
	// DeviceMemory is cuDeviceTotalMem, in bytes.
	DeviceMemory(device int) (int64, cudadrv.Result)
	// DeviceAttribute is cuDeviceGetAttribute.
	DeviceAttribute(device, attribute int) (int, cudadrv.Result)

	// RetainPrimary is cuDevicePrimaryCtxRetain.
	RetainPrimary(device int) (ctx uintptr, r cudadrv.Result)
	// ReleasePrimary is cuDevicePrimaryCtxRelease.
	ReleasePrimary(device int) cudadrv.Result
	// CurrentContext is cuCtxGetCurrent: the calling thread's, or 0.
	CurrentContext() (ctx uintptr, r cudadrv.Result)
	// ContextDevice is cuCtxGetDevice.
	ContextDevice(ctx uintptr) (device int, r cudadrv.Result)
	// Synchronize is cuCtxSynchronize: it waits for all work in the context.
	Synchronize(ctx uintptr) cudadrv.Result

	// MemAlloc is cuMemAlloc.
	MemAlloc(ctx uintptr, size int64) (p uintptr, r cudadrv.Result)
	// MemAllocManaged is cuMemAllocManaged for all streams.
	MemAllocManaged(ctx uintptr, size int64) (p uintptr, r cudadrv.Result)
	// MemFree is cuMemFree of what MemAlloc and MemAllocManaged returned.
	MemFree(ctx, p uintptr) cudadrv.Result
	// MemInfo is cuMemGetInfo, in bytes.
	MemInfo(ctx uintptr) (free, total int64, r cudadrv.Result)

	// NewStream is cuStreamCreate of a stream that does not wait for the null
	// stream, nor the null stream for it.
	NewStream(ctx uintptr) (stream uintptr, r cudadrv.Result)
	// DestroyStream is cuStreamDestroy.
	DestroyStream(ctx, stream uintptr) cudadrv.Result
	// NewEvent is cuEventCreate without timing.
	NewEvent(ctx uintptr) (event uintptr, r cudadrv.Result)
	// DestroyEvent is cuEventDestroy.
	DestroyEvent(ctx, event uintptr) cudadrv.Result
}

var registered Calls

// Register sets the calls. It is for initialisation: nothing may use the
// package at the same time.
func Register(c Calls) { registered = c }

// Registered returns the calls, or nil where nothing was registered: the
// program does not import the module's root.
func Registered() Calls { return registered }
