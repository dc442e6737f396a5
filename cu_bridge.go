//go:build cu

// The conversions of the handles of gorgonia.org/cu, for programs that use that package
// themselves; nothing else needs the tag. Package cuda makes some of its calls through
// cu then, too (internal/cudadrv).
//
// cu is C in part: it takes cgo, CUDA's headers and a libcuda.so to link. This builds it
// with CUDA 12 and 13; with CUDA elsewhere than in /usr/local/cuda, change both paths:
//
//	CGO_CFLAGS="-I$(go list -f '{{.Dir}}' github.com/cupool/cupool)/internal/cudadrv -I/usr/local/cuda/include" CGO_LDFLAGS=-L/usr/local/cuda/lib64/stubs go build -tags cu
//
// The first path has a cuda.h that gives cu the functions of CUDA 12 with 13's header,
// too. Such a program starts only where there is a driver and a GPU: the loader looks
// for libcuda.so.1, and cu ends the program when cuInit fails.

package cupool

import (
	"gorgonia.org/cu"

	"github.com/cupool/cupool/internal/cudadrv"
)

// CUContext returns the handle of a context of cu, for cuda.OpenContext.
func CUContext(ctx cu.CUContext) uintptr { return cudadrv.ContextHandle(ctx) }

// CUStream returns the handle of a stream of cu, for AdoptStream.
func CUStream(s cu.Stream) StreamHandle { return StreamHandle(cudadrv.StreamHandle(s)) }

// CUPtr returns an address of cu as a Ptr; cu.DevicePtr(p) is the way back.
func CUPtr(p cu.DevicePtr) Ptr { return Ptr(p) }
