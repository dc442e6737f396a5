//go:build gpu

package cupool

import "gorgonia.org/cu"

// OnlyCUDA is only there with the tag, and cu only with a CUDA toolkit.
func OnlyCUDA() { cu.NumDevices(); A() }
