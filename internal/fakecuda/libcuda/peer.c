#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Which device may touch another one's memory. Work that touches what it may
// not loses its context, as on a GPU.

_Thread_local CUcontext fake_actor;

static bool known(CUdevice d) { return d >= 0 && d < fake_devices; }

// FAKECUDA_NO_PEER lists the pairs that cannot reach each other: 0-1,2-3.
bool fake_peers_possible(int device, int peer) {
	const char *s = getenv("FAKECUDA_NO_PEER");
	for (; s != NULL && *s != 0; s = strchr(s, ',') != NULL ? strchr(s, ',') + 1 : NULL) {
		int a, b;
		if (sscanf(s, "%d-%d", &a, &b) == 2 && ((a == device && b == peer) || (a == peer && b == device)))
			return false;
	}
	return true;
}

bool fake_may_touch(const range *r) {
	CUcontext ctx = fake_actor;
	switch (r->kind) {
	case MAPPED:
		return ctx == NULL ? r->access != 0 : (r->access & 1u << ctx->device) != 0;
	case DEVICE:
	case IMPORTED:
		return ctx == NULL || ctx->device == r->device || (ctx->peers & 1u << r->device) != 0;
	default: // the host's, or a pool's, which cuMemPoolSetAccess is for
		return true;
	}
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
	FAKE_CALL(false);
	*can = device != peer && fake_peers_possible(device, peer);
	return known(device) && known(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attr, CUdevice from, CUdevice to) {
	FAKE_CALL(false);
	if (!known(from) || !known(to) || from == to)
		return CUDA_ERROR_INVALID_DEVICE;
	*value = attr != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK && fake_peers_possible(from, to);
	return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
	FAKE_CALL(true);
	CUcontext ctx = fake_current();
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (peer == NULL || peer->refs == 0 || peer == ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (peer->device == ctx->device || !fake_peers_possible(ctx->device, peer->device))
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	unsigned bit = 1u << peer->device;
	return atomic_fetch_or(&ctx->peers, bit) & bit ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
	FAKE_CALL(true);
	if (peer == NULL || peer->refs == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	unsigned bit = 1u << peer->device;
	return atomic_fetch_and(&fake_current()->peers, ~bit) & bit ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
