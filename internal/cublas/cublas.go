//go:build gpu

package cublas

/*
#cgo LDFLAGS: -lcuda
#cgo linux LDFLAGS: -ldl
#cgo noescape cp_blas_gemm
#cgo nocallback cp_blas_gemm
#include "blas.h"
*/
import "C"

import (
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/cupool/cupool/internal/cudadrv"
)

// Error is a call of cuBLAS that failed.
type Error struct {
	Call   string
	Status int // cublasStatus_t
}

func (e *Error) Error() string {
	if name := statusNames[e.Status]; name != "" {
		return fmt.Sprintf("%s: CUBLAS_STATUS_%s", e.Call, name)
	}
	return fmt.Sprintf("%s: cuBLAS status %d", e.Call, e.Status)
}

var statusNames = map[int]string{1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 8: "ARCH_MISMATCH",
	11: "MAPPING_ERROR", 13: "EXECUTION_FAILED", 14: "INTERNAL_ERROR", 15: "NOT_SUPPORTED", 16: "LICENSE_ERROR"}

// load looks the library up, once.
var load = sync.OnceValue(func() error {
	if why := C.cp_blas_load(); why != nil {
		return fmt.Errorf("%w: install cuBLAS 11, 12 or 13 (pip install nvidia-cublas, or the CUDA toolkit) and put its directory in LD_LIBRARY_PATH, as cupool run does: %s", ErrMissing, C.GoString(why))
	}
	return nil
})

// A Handle is a cublasHandle_t. Its methods are safe from several goroutines;
// they wait for each other.
type Handle struct {
	Version int // 10000*major + 100*minor + patch

	ctx uintptr
	mu  sync.Mutex
	b   *C.cp_blas
}

// New makes a handle in a context. It fails with ErrMissing or an *Error.
func New(ctx uintptr) (*Handle, error) {
	if err := load(); err != nil {
		return nil, err
	}
	h := &Handle{ctx: ctx}
	var version C.int
	if err := result("cublasCreate", C.cp_blas_create(C.uintptr_t(ctx), &h.b, &version)); err != nil {
		return nil, err
	}
	h.Version = int(version)
	return h, nil
}

// Close destroys the handle.
func (h *Handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return result("cublasDestroy", C.cp_blas_destroy(C.uintptr_t(h.ctx), h.b))
}

// Gemm submits a product to a stream. It returns before it is done, and C must
// not overlap A or B. It fails with ErrSize or an *Error.
func (h *Handle) Gemm(stream uintptr, p *Product) error {
	batch := max(p.Batch, 1)
	for _, v := range [...]int64{p.C.Rows, p.C.Cols, p.A.Cols, p.A.Stride, p.B.Stride, p.C.Stride, batch} {
		if v > math.MaxInt32 {
			return fmt.Errorf("%d: %w", v, ErrSize)
		}
	}
	// A matrix in row-major order is its transpose in column-major order, and
	// Cᵀ = Bᵀ·Aᵀ.
	g := C.cp_gemm_args{
		a: C.uint64_t(p.B.P), b: C.uint64_t(p.A.P), c: C.uint64_t(p.C.P),
		m: C.int64_t(p.C.Cols), n: C.int64_t(p.C.Rows), k: C.int64_t(p.A.Cols),
		lda: C.int64_t(p.B.Stride), ldb: C.int64_t(p.A.Stride), ldc: C.int64_t(p.C.Stride),
		batch: C.int64_t(batch), sa: C.int64_t(p.B.Next), sb: C.int64_t(p.A.Next), sc: C.int64_t(p.C.Next),
		alpha: C.double(p.Alpha), beta: C.double(p.Beta),
		workspace: C.uint64_t(p.Workspace), workspace_size: C.uint64_t(p.Size),
		wide: flag(p.Double), ta: flag(p.B.Transposed), tb: flag(p.A.Transposed), tf32: flag(p.TF32),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return result("cublasGemm", C.cp_blas_gemm(C.uintptr_t(h.ctx), h.b, C.uintptr_t(stream), (*C.cp_gemm_args)(unsafe.Pointer(&g))))
}

func flag(b bool) C.int64_t {
	if b {
		return 1
	}
	return 0
}

func result(call string, status C.int) error {
	switch {
	case status == 0:
		return nil
	case status <= C.CP_BLAS_DRIVER:
		return fmt.Errorf("%s: %v", call, cudadrv.Result(C.CP_BLAS_DRIVER-status))
	}
	return &Error{Call: call, Status: int(status)}
}
