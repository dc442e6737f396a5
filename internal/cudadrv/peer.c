//go:build gpu

// What two devices do together. CUDA 4.0.

#include "calls.h"

cp_value cp_can_access_peer(uintptr_t ctx, int device, int peer) {
	cp_value v = {CP_MISSING, 0};
	if (cp_deviceCanAccessPeer == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_deviceCanAccessPeer((int *)&v.value, device, peer));
}

int cp_enable_peer(uintptr_t ctx, uintptr_t peer) {
	if (cp_ctxEnablePeerAccess == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_ctxEnablePeerAccess((CUcontext)peer, 0));
}

int cp_disable_peer(uintptr_t ctx, uintptr_t peer) {
	if (cp_ctxDisablePeerAccess == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_ctxDisablePeerAccess((CUcontext)peer));
}

// cuMemcpyAsync finds the devices out by itself too, but virtual memory it
// copies only where both devices may use it.
int cp_copy_peer(uintptr_t ctx, uintptr_t dst, uintptr_t to, uintptr_t src, uintptr_t from, size_t n, uintptr_t stream) {
	if (cp_memcpyPeerAsync == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_memcpyPeerAsync((CUdeviceptr)dst, (CUcontext)to, (CUdeviceptr)src, (CUcontext)from, n, (CUstream)stream));
}
