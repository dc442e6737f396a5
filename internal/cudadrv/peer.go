//go:build gpu

package cudadrv

/*
#include "calls.h"
*/
import "C"

// CanAccessPeer is cuDeviceCanAccessPeer of two devices by ordinal.
func CanAccessPeer(ctx uintptr, device, peer int) (bool, Result) {
	v := C.cp_can_access_peer(C.uintptr_t(ctx), C.int(device), C.int(peer))
	return v.value != 0, Result(v.err)
}

// EnablePeer is cuCtxEnablePeerAccess: work in ctx may touch what cuMemAlloc
// returns in peer.
func EnablePeer(ctx, peer uintptr) Result {
	return Result(C.cp_enable_peer(C.uintptr_t(ctx), C.uintptr_t(peer)))
}

// DisablePeer is cuCtxDisablePeerAccess.
func DisablePeer(ctx, peer uintptr) Result {
	return Result(C.cp_disable_peer(C.uintptr_t(ctx), C.uintptr_t(peer)))
}

// CopyPeer is cuMemcpyPeerAsync from memory of the context from to memory of
// the context to, on a stream of ctx.
func CopyPeer(ctx, dst, to, src, from uintptr, n int64, stream uintptr) Result {
	return Result(C.cp_copy_peer(C.uintptr_t(ctx), C.uintptr_t(dst), C.uintptr_t(to), C.uintptr_t(src), C.uintptr_t(from), C.size_t(n), C.uintptr_t(stream)))
}
