//go:build cu

// The conversions of the handles of gorgonia.org/cu. Through it package cuda makes
// some of its calls, too (internal/cudadrv).

package cupool

import (
	"gorgonia.org/cu"

	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/cudadrv"
)

// A cuda.Driver has what the allocator asks of a device. That the type behind
// it has what Engine asks is tested in cu_bridge_test.go.
var _ interface {
	Driver
	StreamOwner
	VirtualMemory
} = cuda.Driver(nil)

// CUContext returns the handle of a context of cu, for cuda.OpenContext.
func CUContext(ctx cu.CUContext) uintptr { return cudadrv.ContextHandle(ctx) }

// CUStream returns the handle of a stream of cu, for AdoptStream.
func CUStream(s cu.Stream) StreamHandle { return StreamHandle(cudadrv.StreamHandle(s)) }

// CUPtr returns an address of cu as a Ptr; cu.DevicePtr(p) is the way back.
func CUPtr(p cu.DevicePtr) Ptr { return Ptr(p) }
