package cudadrv

import (
	"cmp"
	"fmt"
	"iter"
	"os"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/cupool/cupool/internal/clib"
	"github.com/cupool/cupool/internal/cudalibs"
)

// fns are the addresses of the entry points, 0 where the driver lacks one. They are
// set before there is a context.
var fns struct {
	init, ctxGetCurrent, ctxSetCurrent, ctxGetDevice, ctxSynchronize, deviceGetCount, deviceGet     uintptr
	deviceGetName, deviceGetUuid, deviceTotalMem, deviceGetAttribute, primaryCtxRetain              uintptr
	primaryCtxRelease, memAlloc, memAllocManaged, memFree, memGetInfo, memFreeHost, streamCreate    uintptr
	streamDestroy, streamSynchronize, streamWaitEvent, eventCreate, eventDestroy, eventRecord       uintptr
	eventQuery, eventSynchronize, memcpyAsync, memcpyHtoDAsync, memcpyDtoHAsync, memsetD8Async      uintptr
	moduleLoadData, moduleUnload, moduleGetFunction, launchKernel, graphDestroy, getErrorName       uintptr
	getErrorString, pointerGetAttributes, streamGetCtx, streamGetCaptureInfo                        uintptr
	streamBeginCapture, threadExchangeStreamCaptureMode, streamEndCapture, graphInstantiate         uintptr
	graphLaunch, graphUpload, graphExecDestroy, streamGetId, memAddressReserve, memAddressFree      uintptr
	memCreate, memRelease, memMap, memUnmap, memSetAccess, memGetAccess                             uintptr
	memGetAllocationGranularity, memExportToShareableHandle, memImportFromShareableHandle           uintptr
	memRetainAllocationHandle, memAllocAsync, memAllocFromPoolAsync, memFreeAsync                   uintptr
	deviceGetDefaultMemPool, deviceGetMemPool, deviceSetMemPool, memPoolCreate, memPoolDestroy      uintptr
	memPoolTrimTo, memPoolSetAttribute, memPoolGetAttribute, memPoolSetAccess, memPoolGetAccess     uintptr
	memPoolExportToShareableHandle, memPoolImportFromShareableHandle, memPoolExportPointer          uintptr
	memPoolImportPointer, memHostAlloc, memHostRegister, memHostUnregister, memHostGetDevicePointer uintptr
	memPrefetchAsyncV1, memPrefetchAsync, memAdviseV1, memAdvise                                    uintptr
	ipcGetMemHandle, ipcOpenMemHandle, ipcCloseMemHandle                                            uintptr
	deviceCanAccessPeer, ctxEnablePeerAccess, ctxDisablePeerAccess, memcpyPeerAsync                 uintptr
}

// entries say where each is found.
var entries = [...]struct {
	fn     *uintptr
	name   string  // for cuGetProcAddress, and for people
	symbol string  // where it is another one
	since  Version // the first CUDA that has it with the arguments used here
}{
	{&fns.init, "cuInit", "", 2000},
	{&fns.ctxGetCurrent, "cuCtxGetCurrent", "", 4000},
	{&fns.ctxSetCurrent, "cuCtxSetCurrent", "", 4000},
	{&fns.ctxGetDevice, "cuCtxGetDevice", "", 2000},
	{&fns.ctxSynchronize, "cuCtxSynchronize", "", 2000},
	{&fns.deviceGetCount, "cuDeviceGetCount", "", 2000},
	{&fns.deviceGet, "cuDeviceGet", "", 2000},
	{&fns.deviceGetName, "cuDeviceGetName", "", 2000},
	{&fns.deviceGetUuid, "cuDeviceGetUuid", "", 9020},
	{&fns.deviceTotalMem, "cuDeviceTotalMem", "cuDeviceTotalMem_v2", 3020},
	{&fns.deviceGetAttribute, "cuDeviceGetAttribute", "", 2000},
	{&fns.primaryCtxRetain, "cuDevicePrimaryCtxRetain", "", 7000},
	{&fns.primaryCtxRelease, "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", 11000},
	{&fns.memAlloc, "cuMemAlloc", "cuMemAlloc_v2", 3020},
	{&fns.memAllocManaged, "cuMemAllocManaged", "", 6000},
	{&fns.memFree, "cuMemFree", "cuMemFree_v2", 3020},
	{&fns.memGetInfo, "cuMemGetInfo", "cuMemGetInfo_v2", 3020},
	{&fns.memFreeHost, "cuMemFreeHost", "", 2000},
	{&fns.streamCreate, "cuStreamCreate", "", 2000},
	{&fns.streamDestroy, "cuStreamDestroy", "cuStreamDestroy_v2", 4000},
	{&fns.streamSynchronize, "cuStreamSynchronize", "", 2000},
	{&fns.streamWaitEvent, "cuStreamWaitEvent", "", 3020},
	{&fns.eventCreate, "cuEventCreate", "", 2000},
	{&fns.eventDestroy, "cuEventDestroy", "cuEventDestroy_v2", 4000},
	{&fns.eventRecord, "cuEventRecord", "", 2000},
	{&fns.eventQuery, "cuEventQuery", "", 2000},
	{&fns.eventSynchronize, "cuEventSynchronize", "", 2000},
	{&fns.memcpyAsync, "cuMemcpyAsync", "", 4000},
	{&fns.memcpyHtoDAsync, "cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", 3020},
	{&fns.memcpyDtoHAsync, "cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", 3020},
	{&fns.memsetD8Async, "cuMemsetD8Async", "", 3020},
	{&fns.moduleLoadData, "cuModuleLoadData", "", 2000},
	{&fns.moduleUnload, "cuModuleUnload", "", 2000},
	{&fns.moduleGetFunction, "cuModuleGetFunction", "", 2000},
	{&fns.launchKernel, "cuLaunchKernel", "", 4000},
	{&fns.graphDestroy, "cuGraphDestroy", "", 10000},
	{&fns.getErrorName, "cuGetErrorName", "", 6000},
	{&fns.getErrorString, "cuGetErrorString", "", 6000},
	{&fns.pointerGetAttributes, "cuPointerGetAttributes", "", 7000},
	{&fns.streamGetCtx, "cuStreamGetCtx", "", 9020},
	{&fns.streamGetCaptureInfo, "cuStreamGetCaptureInfo", "", 10010},
	{&fns.streamBeginCapture, "cuStreamBeginCapture", "cuStreamBeginCapture_v2", 10010},
	{&fns.threadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", "", 10010},
	{&fns.streamEndCapture, "cuStreamEndCapture", "", 10000},
	{&fns.graphInstantiate, "cuGraphInstantiateWithFlags", "", 11040},
	{&fns.graphLaunch, "cuGraphLaunch", "", 10000},
	{&fns.graphUpload, "cuGraphUpload", "", 11010},
	{&fns.graphExecDestroy, "cuGraphExecDestroy", "", 10000},
	{&fns.streamGetId, "cuStreamGetId", "", 12000},
	{&fns.memAddressReserve, "cuMemAddressReserve", "", 10020},
	{&fns.memAddressFree, "cuMemAddressFree", "", 10020},
	{&fns.memCreate, "cuMemCreate", "", 10020},
	{&fns.memRelease, "cuMemRelease", "", 10020},
	{&fns.memMap, "cuMemMap", "", 10020},
	{&fns.memUnmap, "cuMemUnmap", "", 10020},
	{&fns.memSetAccess, "cuMemSetAccess", "", 10020},
	{&fns.memGetAccess, "cuMemGetAccess", "", 10020},
	{&fns.memGetAllocationGranularity, "cuMemGetAllocationGranularity", "", 10020},
	{&fns.memExportToShareableHandle, "cuMemExportToShareableHandle", "", 10020},
	{&fns.memImportFromShareableHandle, "cuMemImportFromShareableHandle", "", 10020},
	{&fns.memRetainAllocationHandle, "cuMemRetainAllocationHandle", "", 11000},
	{&fns.memAllocAsync, "cuMemAllocAsync", "", 11020},
	{&fns.memAllocFromPoolAsync, "cuMemAllocFromPoolAsync", "", 11020},
	{&fns.memFreeAsync, "cuMemFreeAsync", "", 11020},
	{&fns.deviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", "", 11020},
	{&fns.deviceGetMemPool, "cuDeviceGetMemPool", "", 11020},
	{&fns.deviceSetMemPool, "cuDeviceSetMemPool", "", 11020},
	{&fns.memPoolCreate, "cuMemPoolCreate", "", 11020},
	{&fns.memPoolDestroy, "cuMemPoolDestroy", "", 11020},
	{&fns.memPoolTrimTo, "cuMemPoolTrimTo", "", 11020},
	{&fns.memPoolSetAttribute, "cuMemPoolSetAttribute", "", 11020},
	{&fns.memPoolGetAttribute, "cuMemPoolGetAttribute", "", 11020},
	{&fns.memPoolSetAccess, "cuMemPoolSetAccess", "", 11020},
	{&fns.memPoolGetAccess, "cuMemPoolGetAccess", "", 11020},
	{&fns.memPoolExportToShareableHandle, "cuMemPoolExportToShareableHandle", "", 11020},
	{&fns.memPoolImportFromShareableHandle, "cuMemPoolImportFromShareableHandle", "", 11020},
	{&fns.memPoolExportPointer, "cuMemPoolExportPointer", "", 11020},
	{&fns.memPoolImportPointer, "cuMemPoolImportPointer", "", 11020},
	{&fns.memHostAlloc, "cuMemHostAlloc", "", 2020},
	{&fns.memHostRegister, "cuMemHostRegister", "cuMemHostRegister_v2", 6050},
	{&fns.memHostUnregister, "cuMemHostUnregister", "", 4000},
	{&fns.memHostGetDevicePointer, "cuMemHostGetDevicePointer", "cuMemHostGetDevicePointer_v2", 3020},
	{&fns.memPrefetchAsyncV1, "cuMemPrefetchAsync", "", 8000},
	{&fns.memPrefetchAsync, "cuMemPrefetchAsync", "cuMemPrefetchAsync_v2", 12020},
	{&fns.memAdviseV1, "cuMemAdvise", "", 8000},
	{&fns.memAdvise, "cuMemAdvise", "cuMemAdvise_v2", 12020},
	{&fns.ipcGetMemHandle, "cuIpcGetMemHandle", "", 4010},
	{&fns.ipcOpenMemHandle, "cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2", 11000},
	{&fns.ipcCloseMemHandle, "cuIpcCloseMemHandle", "", 4010},
	{&fns.deviceCanAccessPeer, "cuDeviceCanAccessPeer", "", 4000},
	{&fns.ctxEnablePeerAccess, "cuCtxEnablePeerAccess", "", 4000},
	{&fns.ctxDisablePeerAccess, "cuCtxDisablePeerAccess", "", 4000},
	{&fns.memcpyPeerAsync, "cuMemcpyPeerAsync", "", 4000},
}

// library is the driver's.
var library struct {
	once    sync.Once
	err     error // why none could be opened
	path    string
	version Version
}

// scope gets and sets the context of a thread.
var scope clib.Scope

// Load opens the driver's library, the one in CUPOOL_LIBCUDA or the system's, and
// looks the entry points up, once. The error says why there is none.
func Load() error {
	library.once.Do(func() { library.err = load() })
	return library.err
}

// Path returns the path or name by which the library was opened.
func Path() string {
	_ = Load()
	return library.path
}

func load() error {
	l, path, err := clib.OpenFirst(candidates())
	library.path = path
	if err != nil {
		return err
	}
	version := l.Find("cuDriverGetVersion")
	var v int32
	if version == 0 || int32(clib.Call(version, uintptr(unsafe.Pointer(&v)))) != 0 {
		return fmt.Errorf("%s does not say its CUDA version: it is no NVIDIA driver", library.path)
	}
	library.version = Version(v)
	for _, e := range entries {
		if library.version >= e.since {
			*e.fn = find(l, e.name, cmp.Or(e.symbol, e.name), e.since)
		}
	}
	scope = clib.Scope{Get: fns.ctxGetCurrent, Set: fns.ctxSetCurrent}
	return nil
}

// candidates returns what to open, in order.
func candidates() iter.Seq[string] {
	if path := os.Getenv(cudalibs.Driver); path != "" {
		return slices.Values([]string{path})
	}
	if runtime.GOOS == "windows" {
		return cudalibs.Candidates("nvcuda.dll")
	}
	return cudalibs.Candidates("libcuda.so.1")
}

// find looks an entry point up as of a version. cuGetProcAddress came with CUDA 11.3
// and took its last parameter with 12.0. Either may be missing.
func find(l clib.Library, name, symbol string, since Version) uintptr {
	var fn uintptr
	ask := l.Find("cuGetProcAddress_v2")
	if ask == 0 {
		ask = l.Find("cuGetProcAddress") // it does not look at the fifth argument
	}
	if ask != 0 && int32(clib.Call(ask, uintptr(unsafe.Pointer(clib.String(name))), uintptr(unsafe.Pointer(&fn)), uintptr(since), 0, 0)) == 0 && fn != 0 {
		return fn
	}
	return l.Find(symbol)
}
