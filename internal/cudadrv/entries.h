//go:build gpu

#ifndef CUPOOL_ENTRIES_H
#define CUPOOL_ENTRIES_H

#include "scope.h"

// The structures below are the driver's, under names of our own, because the
// headers of CUDA 11.0 lack them; entries.c compares them with the vendor's
// where those exist.
typedef void *cp_pool; // CUmemoryPool

typedef struct { // CUmemPoolProps, CUDA 11.2; maxSize and usage came out of reserved later
	int allocType;
	int handleTypes;
	CUmemLocation location;
	void *win32SecurityAttributes;
	size_t maxSize;
	unsigned short usage;
	unsigned char reserved[54];
} cp_pool_props;

typedef struct { // CUmemPoolPtrExportData, CUDA 11.2
	unsigned char bytes[64];
} cp_pool_pointer;

typedef struct { // CUipcMemHandle, CUipcEventHandle
	char bytes[64];
} cp_ipc_handle;

// CP_ENTRIES lists the entry points that are looked up:
//   X(our name, name for cuGetProcAddress, symbol, first version, arguments)
// The version is CUDA's, as 1000*major + 10*minor, in which this very
// signature came; cuGetProcAddress is asked for the function as of it.
#define CP_ENTRIES(X) \
	X(init, "cuInit", "cuInit", 2000, (unsigned flags)) \
	X(getErrorName, "cuGetErrorName", "cuGetErrorName", 6000, (CUresult r, const char **s)) \
	X(getErrorString, "cuGetErrorString", "cuGetErrorString", 6000, (CUresult r, const char **s)) \
	X(pointerGetAttributes, "cuPointerGetAttributes", "cuPointerGetAttributes", 7000, (unsigned n, CUpointer_attribute *attrs, void **data, CUdeviceptr p)) \
	X(streamGetCtx, "cuStreamGetCtx", "cuStreamGetCtx", 9020, (CUstream s, CUcontext *ctx)) \
	X(streamIsCapturing, "cuStreamIsCapturing", "cuStreamIsCapturing", 10000, (CUstream s, CUstreamCaptureStatus *status)) \
	X(streamGetCaptureInfo, "cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo", 10010, (CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id)) \
	X(streamBeginCapture, "cuStreamBeginCapture", "cuStreamBeginCapture_v2", 10010, (CUstream s, CUstreamCaptureMode mode)) \
	X(threadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", "cuThreadExchangeStreamCaptureMode", 10010, (CUstreamCaptureMode *mode)) \
	X(streamEndCapture, "cuStreamEndCapture", "cuStreamEndCapture", 10000, (CUstream s, CUgraph *graph)) \
	X(graphInstantiate, "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags", 11040, (CUgraphExec *exec, CUgraph graph, unsigned long long flags)) \
	X(graphLaunch, "cuGraphLaunch", "cuGraphLaunch", 10000, (CUgraphExec exec, CUstream s)) \
	X(graphUpload, "cuGraphUpload", "cuGraphUpload", 11010, (CUgraphExec exec, CUstream s)) \
	X(graphExecDestroy, "cuGraphExecDestroy", "cuGraphExecDestroy", 10000, (CUgraphExec exec)) \
	X(streamGetId, "cuStreamGetId", "cuStreamGetId", 12000, (CUstream s, unsigned long long *id)) \
	X(memAddressReserve, "cuMemAddressReserve", "cuMemAddressReserve", 10020, (CUdeviceptr *p, size_t size, size_t align, CUdeviceptr at, unsigned long long flags)) \
	X(memAddressFree, "cuMemAddressFree", "cuMemAddressFree", 10020, (CUdeviceptr p, size_t size)) \
	X(memCreate, "cuMemCreate", "cuMemCreate", 10020, (CUmemGenericAllocationHandle *h, size_t size, const CUmemAllocationProp *prop, unsigned long long flags)) \
	X(memRelease, "cuMemRelease", "cuMemRelease", 10020, (CUmemGenericAllocationHandle h)) \
	X(memMap, "cuMemMap", "cuMemMap", 10020, (CUdeviceptr p, size_t size, size_t off, CUmemGenericAllocationHandle h, unsigned long long flags)) \
	X(memUnmap, "cuMemUnmap", "cuMemUnmap", 10020, (CUdeviceptr p, size_t size)) \
	X(memSetAccess, "cuMemSetAccess", "cuMemSetAccess", 10020, (CUdeviceptr p, size_t size, const CUmemAccessDesc *desc, size_t n)) \
	X(memGetAccess, "cuMemGetAccess", "cuMemGetAccess", 10020, (unsigned long long *flags, const CUmemLocation *at, CUdeviceptr p)) \
	X(memGetAllocationGranularity, "cuMemGetAllocationGranularity", "cuMemGetAllocationGranularity", 10020, (size_t *g, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags opt)) \
	X(memExportToShareableHandle, "cuMemExportToShareableHandle", "cuMemExportToShareableHandle", 10020, (void *out, CUmemGenericAllocationHandle h, int type, unsigned long long flags)) \
	X(memImportFromShareableHandle, "cuMemImportFromShareableHandle", "cuMemImportFromShareableHandle", 10020, (CUmemGenericAllocationHandle *h, void *os, int type)) \
	X(memRetainAllocationHandle, "cuMemRetainAllocationHandle", "cuMemRetainAllocationHandle", 11000, (CUmemGenericAllocationHandle *h, void *p)) \
	X(memAllocAsync, "cuMemAllocAsync", "cuMemAllocAsync", 11020, (CUdeviceptr *p, size_t size, CUstream s)) \
	X(memAllocFromPoolAsync, "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync", 11020, (CUdeviceptr *p, size_t size, cp_pool pool, CUstream s)) \
	X(memFreeAsync, "cuMemFreeAsync", "cuMemFreeAsync", 11020, (CUdeviceptr p, CUstream s)) \
	X(deviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", "cuDeviceGetDefaultMemPool", 11020, (cp_pool *pool, CUdevice d)) \
	X(deviceGetMemPool, "cuDeviceGetMemPool", "cuDeviceGetMemPool", 11020, (cp_pool *pool, CUdevice d)) \
	X(deviceSetMemPool, "cuDeviceSetMemPool", "cuDeviceSetMemPool", 11020, (CUdevice d, cp_pool pool)) \
	X(memPoolCreate, "cuMemPoolCreate", "cuMemPoolCreate", 11020, (cp_pool *pool, const cp_pool_props *props)) \
	X(memPoolDestroy, "cuMemPoolDestroy", "cuMemPoolDestroy", 11020, (cp_pool pool)) \
	X(memPoolTrimTo, "cuMemPoolTrimTo", "cuMemPoolTrimTo", 11020, (cp_pool pool, size_t keep)) \
	X(memPoolSetAttribute, "cuMemPoolSetAttribute", "cuMemPoolSetAttribute", 11020, (cp_pool pool, int attr, void *value)) \
	X(memPoolGetAttribute, "cuMemPoolGetAttribute", "cuMemPoolGetAttribute", 11020, (cp_pool pool, int attr, void *value)) \
	X(memPoolSetAccess, "cuMemPoolSetAccess", "cuMemPoolSetAccess", 11020, (cp_pool pool, const CUmemAccessDesc *map, size_t n)) \
	X(memPoolGetAccess, "cuMemPoolGetAccess", "cuMemPoolGetAccess", 11020, (CUmemAccess_flags *flags, cp_pool pool, CUmemLocation *at)) \
	X(memPoolExportToShareableHandle, "cuMemPoolExportToShareableHandle", "cuMemPoolExportToShareableHandle", 11020, (void *out, cp_pool pool, int type, unsigned long long flags)) \
	X(memPoolImportFromShareableHandle, "cuMemPoolImportFromShareableHandle", "cuMemPoolImportFromShareableHandle", 11020, (cp_pool *pool, void *os, int type, unsigned long long flags)) \
	X(memPoolExportPointer, "cuMemPoolExportPointer", "cuMemPoolExportPointer", 11020, (cp_pool_pointer *out, CUdeviceptr p)) \
	X(memPoolImportPointer, "cuMemPoolImportPointer", "cuMemPoolImportPointer", 11020, (CUdeviceptr *p, cp_pool pool, cp_pool_pointer *data)) \
	X(memHostAlloc, "cuMemHostAlloc", "cuMemHostAlloc", 2020, (void **p, size_t size, unsigned flags)) \
	X(memHostRegister, "cuMemHostRegister", "cuMemHostRegister_v2", 6050, (void *p, size_t size, unsigned flags)) \
	X(memHostUnregister, "cuMemHostUnregister", "cuMemHostUnregister", 4000, (void *p)) \
	X(memHostGetDevicePointer, "cuMemHostGetDevicePointer", "cuMemHostGetDevicePointer_v2", 3020, (CUdeviceptr *d, void *p, unsigned flags)) \
	X(memPrefetchAsyncV1, "cuMemPrefetchAsync", "cuMemPrefetchAsync", 8000, (CUdeviceptr p, size_t n, CUdevice to, CUstream s)) \
	X(memPrefetchAsync, "cuMemPrefetchAsync", "cuMemPrefetchAsync_v2", 12020, (CUdeviceptr p, size_t n, CUmemLocation to, unsigned flags, CUstream s)) \
	X(memAdviseV1, "cuMemAdvise", "cuMemAdvise", 8000, (CUdeviceptr p, size_t n, CUmem_advise advice, CUdevice d)) \
	X(memAdvise, "cuMemAdvise", "cuMemAdvise_v2", 12020, (CUdeviceptr p, size_t n, CUmem_advise advice, CUmemLocation at)) \
	X(memRangeGetAttribute, "cuMemRangeGetAttribute", "cuMemRangeGetAttribute", 8000, (void *data, size_t size, CUmem_range_attribute attr, CUdeviceptr p, size_t n)) \
	X(ipcGetMemHandle, "cuIpcGetMemHandle", "cuIpcGetMemHandle", 4010, (cp_ipc_handle *h, CUdeviceptr p)) \
	X(ipcOpenMemHandle, "cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2", 11000, (CUdeviceptr *p, cp_ipc_handle h, unsigned flags)) \
	X(ipcCloseMemHandle, "cuIpcCloseMemHandle", "cuIpcCloseMemHandle", 4010, (CUdeviceptr p)) \
	X(ipcGetEventHandle, "cuIpcGetEventHandle", "cuIpcGetEventHandle", 4010, (cp_ipc_handle *h, CUevent e)) \
	X(ipcOpenEventHandle, "cuIpcOpenEventHandle", "cuIpcOpenEventHandle", 4010, (CUevent *e, cp_ipc_handle h)) \
	X(deviceCanAccessPeer, "cuDeviceCanAccessPeer", "cuDeviceCanAccessPeer", 4000, (int *can, CUdevice d, CUdevice peer)) \
	X(ctxEnablePeerAccess, "cuCtxEnablePeerAccess", "cuCtxEnablePeerAccess", 4000, (CUcontext peer, unsigned flags)) \
	X(ctxDisablePeerAccess, "cuCtxDisablePeerAccess", "cuCtxDisablePeerAccess", 4000, (CUcontext peer)) \
	X(memcpyPeerAsync, "cuMemcpyPeerAsync", "cuMemcpyPeerAsync", 4000, (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n, CUstream s))

// One pointer type and one variable, cp_<our name>, for each; NULL: missing.
#define CP_DECLARE(id, base, symbol, since, args) \
	typedef CUresult(CUDAAPI *cp_##id##_fn) args; \
	extern cp_##id##_fn cp_##id;
CP_ENTRIES(CP_DECLARE)
#undef CP_DECLARE

// cp_load looks all entry points up.
void cp_load(void);

// An entry of the table, for reports: cp_entry(i) until its name is NULL.
typedef struct {
	const char *name; // as for cuGetProcAddress
	int since;
	int present;
} cp_entry_info;
cp_entry_info cp_entry(int i);

#endif
