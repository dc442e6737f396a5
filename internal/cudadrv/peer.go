package cudadrv

// CopyPeer is cuMemcpyPeerAsync from memory of the context from to memory of the
// context to, on a stream of ctx. Copy finds the devices out by itself too, but virtual
// memory it copies only where both devices may use it.
func CopyPeer(ctx, dst, to, src, from uintptr, n int64, stream uintptr) Result {
	return call(ctx, fns.memcpyPeerAsync, dst, to, src, from, uintptr(n), stream)
}
