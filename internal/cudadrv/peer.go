package cudadrv

// CanAccessPeer is cuDeviceCanAccessPeer of two devices by ordinal.
func CanAccessPeer(ctx uintptr, device, peer int) (bool, Result) {
	can, r := value(ctx, fns.deviceCanAccessPeer, 0, 0, uintptr(device), uintptr(peer))
	return can != 0, r
}

// EnablePeer is cuCtxEnablePeerAccess: work in ctx may touch what cuMemAlloc
// returns in peer.
func EnablePeer(ctx, peer uintptr) Result { return call(ctx, fns.ctxEnablePeerAccess, peer, 0) }

// DisablePeer is cuCtxDisablePeerAccess.
func DisablePeer(ctx, peer uintptr) Result { return call(ctx, fns.ctxDisablePeerAccess, peer) }

// CopyPeer is cuMemcpyPeerAsync from memory of the context from to memory of the
// context to, on a stream of ctx. Copy finds the devices out by itself too, but virtual
// memory it copies only where both devices may use it.
func CopyPeer(ctx, dst, to, src, from uintptr, n int64, stream uintptr) Result {
	return call(ctx, fns.memcpyPeerAsync, dst, to, src, from, uintptr(n), stream)
}
