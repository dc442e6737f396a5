package cublas

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"unsafe"

	"github.com/cupool/cupool/internal/clib"
	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/cudalibs"
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

// fns are the addresses of the calls, which are the same in all versions from 11 on.
var fns struct {
	create, destroy, version, setStream, setWorkspace, setMath, sgemm, dgemm, sbatched, dbatched uintptr
}

var symbols = [...]struct {
	fn   *uintptr
	name string
}{
	{&fns.create, "cublasCreate_v2"},
	{&fns.destroy, "cublasDestroy_v2"},
	{&fns.version, "cublasGetVersion_v2"},
	{&fns.setStream, "cublasSetStream_v2"},
	{&fns.setWorkspace, "cublasSetWorkspace_v2"},
	{&fns.setMath, "cublasSetMathMode"},
	{&fns.sgemm, "cublasSgemm_v2"},
	{&fns.dgemm, "cublasDgemm_v2"},
	{&fns.sbatched, "cublasSgemmStridedBatched"},
	{&fns.dbatched, "cublasDgemmStridedBatched"},
}

// names of the library, the newest first.
func names() []string {
	if runtime.GOOS == "windows" {
		return []string{"cublas64_13.dll", "cublas64_12.dll", "cublas64_11.dll"}
	}
	return []string{"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"}
}

// Find opens the library, once, and returns the name or path that it was opened by. It
// fails with ErrMissing.
var Find = sync.OnceValues(func() (path string, err error) {
	l, path, err := clib.OpenFirst(cudalibs.Candidates(names()...))
	for _, s := range symbols {
		if err != nil {
			break
		}
		if *s.fn = l.Find(s.name); *s.fn == 0 {
			err = fmt.Errorf("%s has no %s", path, s.name)
		}
	}
	if err != nil {
		return "", fmt.Errorf("%w: install cuBLAS 11, 12 or 13 (pip install nvidia-cublas, or the CUDA toolkit): %w", ErrMissing, err)
	}
	return path, nil
})

// A Handle is a cublasHandle_t, with what is set on it. Its methods are safe from
// several goroutines; they wait for each other.
type Handle struct {
	Version int // 10000*major + 100*minor + patch

	ctx uintptr
	mu  sync.Mutex
	h   uintptr

	stream, workspace uintptr
	size              int64 // of the workspace, in bytes
	tf32              bool
	unknown           bool    // what is set, after a failure
	alpha, beta       float64 // of the call that is made; a float32 lies in the first half
}

// New makes a handle in a context. It fails with ErrMissing or an *Error.
func New(ctx uintptr) (*Handle, error) {
	if _, err := Find(); err != nil {
		return nil, err
	}
	create := clib.Step{Fn: fns.create, N: 1}
	create.Out(0, 0)
	s := []clib.Step{create}
	if err := run("cublasCreate", ctx, s); err != nil {
		return nil, err
	}
	h := &Handle{ctx: ctx, h: s[0].Value(0)}
	version := clib.StepOf(fns.version, h.h, 0)
	version.Out(1, 0)
	s[0] = version
	if err := run("cublasGetVersion", ctx, s); err != nil {
		_ = h.Close()
		return nil, err
	}
	h.Version = int(s[0].Value(0))
	return h, nil
}

// Close destroys the handle.
func (h *Handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return run("cublasDestroy", h.ctx, []clib.Step{clib.StepOf(fns.destroy, h.h)})
}

// Gemm submits a product to a stream. It returns before it is done, and C must
// not overlap A or B. It fails with ErrSize or an *Error.
func (h *Handle) Gemm(stream uintptr, p *Product) error {
	for _, v := range [...]int64{p.C.Rows, p.C.Cols, p.A.Cols, p.A.Stride, p.B.Stride, p.C.Stride, p.Batch} {
		if v > math.MaxInt32 {
			return fmt.Errorf("%d: %w", v, ErrSize)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var room [4]clib.Step
	err := run("cublasGemm", h.ctx, append(h.prepare(room[:0], stream, p), h.gemm(p)))
	h.unknown = err != nil
	return err
}

// prepare adds the calls that set on the handle what is not set already. To set the
// stream takes the workspace back.
func (h *Handle) prepare(s []clib.Step, stream uintptr, p *Product) []clib.Step {
	if h.unknown || h.stream != stream {
		s = append(s, clib.StepOf(fns.setStream, h.h, stream))
		h.stream, h.workspace, h.size = stream, 0, 0
	}
	if h.unknown || h.workspace != p.Workspace || h.size != p.Size {
		s = append(s, clib.StepOf(fns.setWorkspace, h.h, p.Workspace, uintptr(p.Size)))
		h.workspace, h.size = p.Workspace, p.Size
	}
	if h.unknown || h.tf32 != p.TF32 {
		const byDefault, tf32 = 0, 3 // CUBLAS_DEFAULT_MATH, CUBLAS_TF32_TENSOR_OP_MATH
		mode := uintptr(byDefault)
		if p.TF32 {
			mode = tf32
		}
		s = append(s, clib.StepOf(fns.setMath, h.h, mode))
		h.tf32 = p.TF32
	}
	return s
}

// gemm returns the product's call. A matrix in row-major order is its transpose in
// column-major order, and Cᵀ = Bᵀ·Aᵀ.
func (h *Handle) gemm(p *Product) clib.Step {
	set(&h.alpha, p.Alpha, p.Double)
	set(&h.beta, p.Beta, p.Double)
	alpha, beta := uintptr(unsafe.Pointer(&h.alpha)), uintptr(unsafe.Pointer(&h.beta)) // a Handle lies on Go's heap
	m, n, k := uintptr(p.C.Cols), uintptr(p.C.Rows), uintptr(p.A.Cols)
	ta, tb := flag(p.B.Transposed), flag(p.A.Transposed)
	lda, ldb, ldc := uintptr(p.B.Stride), uintptr(p.A.Stride), uintptr(p.C.Stride)
	if p.Batch <= 1 {
		return clib.StepOf(either(p.Double, fns.dgemm, fns.sgemm), h.h, ta, tb, m, n, k, alpha, p.B.P, lda, p.A.P, ldb, beta, p.C.P, ldc)
	}
	return clib.StepOf(either(p.Double, fns.dbatched, fns.sbatched), h.h, ta, tb, m, n, k, alpha, p.B.P, lda, uintptr(p.B.Next),
		p.A.P, ldb, uintptr(p.A.Next), beta, p.C.P, ldc, uintptr(p.C.Next), uintptr(p.Batch))
}

// set writes v as the type of the product's elements.
func set(to *float64, v float64, double bool) {
	if double {
		*to = v
		return
	}
	*(*float32)(unsafe.Pointer(to)) = float32(v)
}

func either(double bool, d, s uintptr) uintptr {
	if double {
		return d
	}
	return s
}

func flag(b bool) uintptr {
	if b {
		return 1
	}
	return 0
}

// run makes calls in a context, in one crossing.
func run(call string, ctx uintptr, steps []clib.Step) error {
	switch status, entered := cudadrv.Run(ctx, 0, steps...); {
	case !entered:
		return fmt.Errorf("%s: %v", call, cudadrv.Result(status))
	case status != 0:
		return &Error{Call: call, Status: int(status)}
	}
	return nil
}
