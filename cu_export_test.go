//go:build gpu

package cupool

// BlasHandles returns how many cuBLAS handles a device of CUDA has, and how many
// of them serve no stream.
func BlasHandles(d Driver) (all, idle int) {
	b := &d.(*cudaDriver).blas
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.byStream) + len(b.idle), len(b.idle)
}
