package cupool

import (
	"slices"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/cublas"
	"github.com/cupool/cupool/internal/kernels"
)

// computer is the optional part of a Driver whose device computes: CUDA's
// with device memory (cu_kernels.go). Work is submitted to a stream.
type computer interface {
	// loadKernels makes the kernels ready. It fails with ErrNotSupported
	// where they cannot be had.
	loadKernels() error
	launch(l kernels.Launch, s StreamHandle) error
	// multiply submits a product to s with cuBLAS' handle of the stream of: the
	// second stream of a capture has none, as making one may wait for the device.
	// It fails with ErrNotSupported where there is no cuBLAS.
	multiply(p *cublas.Product, of, s StreamHandle) error
	// workspace is how many bytes multiply works best with.
	workspace() int64
}

// gpu computes an Engine's operations on its device. Each method returns false
// where it does not serve: for operands that are not all of floats and in this
// engine's memory, for shapes that do not fit, and for the rare forms. Then
// the operation goes the way of a device that does not compute, on copies in
// host memory, which also says what is wrong with it. The methods of a nil
// *gpu serve nothing.
//
// The files: tensor_gpu.go operands, tensor_gpu_walk.go ways through them,
// tensor_gpu_elementwise.go, tensor_gpu_reduce.go, tensor_gpu_move.go,
// tensor_gpu_linalg.go and tensor_gpu_layers.go the operations, by the kernel
// that does them.
type gpu struct {
	e    *Engine
	d    computer
	tf32 bool
}

// operandOf returns a tensor as kernels see it; false if it is none for them.
func (g *gpu) operandOf(t tensor.Tensor) (operandView, bool) {
	d, ok := t.(*tensor.Dense)
	if !ok || d == nil || EngineOf(d) != g.e || d.IsMasked() || d.MemSize() == 0 {
		return operandView{}, false
	}
	v := operandView{d: d, p: Ptr(d.Uintptr()), dt: d.Dtype(), shape: d.Shape(), strides: d.Strides(), n: d.Shape().TotalSize()}
	if v.n == 1 {
		v.strides = ones[:min(len(v.shape), len(ones))]
	}
	if len(v.strides) != len(v.shape) {
		return operandView{}, false
	}
	dev, err := g.e.onDevice(v.p, int64(d.MemSize()))
	return v, dev && err == nil
}

var ones = [kernels.MaxDims]int{1, 1, 1, 1, 1, 1, 1, 1}

// floatsOf is operandOf for tensors of float32 or float64, all of one type.
func (g *gpu) floatsOf(vs []operandView, ts ...tensor.Tensor) bool {
	for i, t := range ts {
		v, ok := g.operandOf(t)
		if !ok || !v.isFloat() || i > 0 && v.dt != vs[0].dt {
			return false
		}
		vs[i] = v
	}
	return true
}

// operandView is a tensor in device memory. Strides are in elements.
type operandView struct {
	d              *tensor.Dense
	p              Ptr
	dt             tensor.Dtype
	shape, strides []int
	n              int // elements
}

func (v *operandView) isFloat() bool { return v.dt == tensor.Float32 || v.dt == tensor.Float64 }
func (v *operandView) double() bool  { return v.dt == tensor.Float64 }

// rowMajor reports whether the elements lie one after the other in row-major
// order.
func (v *operandView) rowMajor() bool {
	step := 1
	for i := len(v.shape) - 1; i >= 0; i-- {
		if v.shape[i] != 1 && v.strides[i] != step {
			return false
		}
		step *= v.shape[i]
	}
	return true
}

// clashes reports whether to write to v while w is read goes wrong: they share
// memory, but not element by element.
func (v *operandView) clashes(w *operandView) bool {
	if !v.overlaps(w) {
		return false
	}
	return v.p != w.p || v.dt.Size() != w.dt.Size() || !slices.Equal(v.shape, w.shape) || !slices.Equal(v.strides, w.strides)
}

// overlaps reports whether they share memory.
func (v *operandView) overlaps(w *operandView) bool {
	return v.p < w.end() && w.p < v.end()
}

// end is where the memory between the first and the last element ends. v.d may
// have more, or less.
func (v *operandView) end() Ptr {
	last := 0
	for d, size := range v.shape {
		last += (size - 1) * v.strides[d]
	}
	return v.p + Ptr(last+1)*Ptr(v.dt.Size())
}

// fresh returns a new tensor for a result.
func (g *gpu) fresh(dt tensor.Dtype, shape []int) (operandView, error) {
	d, err := g.e.Empty(dt, shape...)
	if err != nil {
		return operandView{}, err
	}
	return operandView{d: d, p: Ptr(d.Uintptr()), dt: dt, shape: d.Shape(), strides: strides(d), n: d.Shape().TotalSize()}, nil
}

func strides(d *tensor.Dense) []int {
	if d.Shape().TotalSize() == 1 {
		return ones[:d.Dims()]
	}
	return d.Strides()
}

// output returns where the result of an operation on a goes: what the options
// say, or a new tensor of type dt. It serves outputs that have that type and
// a's shape. incr says that the result is to be added.
func (g *gpu) output(a *operandView, o *funcOpts, dt tensor.Dtype, shape []int) (dst operandView, incr, ok bool, err error) {
	var t tensor.Tensor
	switch {
	case o.fresh():
		dst, err = g.fresh(dt, shape)
		return dst, false, true, err
	case o.incr != nil && o.reuse == nil:
		t, incr = o.incr, true
	case o.reuse != nil && o.incr == nil:
		t = o.reuse
	case o.unsafe && a != nil:
		t = a.d
	default:
		return dst, false, false, nil
	}
	dst, ok = g.operandOf(t)
	return dst, incr, ok && dst.dt == dt && slices.Equal(dst.shape, shape), nil
}

// drop frees the output of an operation that failed or is not served, if it is
// new.
func (g *gpu) drop(dst *operandView, o *funcOpts) {
	if o.fresh() && dst.d != nil {
		_ = g.e.freeTensor(dst.d) // it is live and whole
	}
}

// Threads of a block for kernels that go over elements, and the most blocks:
// enough to fill any GPU, and each thread does several elements.
const (
	gpuBlock    = 256
	gpuMaxGrid  = 4096
	gpuWarp     = 32
	gpuMaxBlock = 1024
)

// each launches a kernel over n elements.
func (g *gpu) each(op string, k kernels.Kernel, n int, args unsafe.Pointer) error {
	return g.launch(op, kernels.Launch{Kernel: k, X: blocks(n, gpuBlock), Y: 1, Block: gpuBlock, Args: args})
}

// blocks returns how many blocks of so many elements n elements need.
func blocks(n, each int) int { return max(1, min((n+each-1)/each, gpuMaxGrid)) }

func (g *gpu) launch(op string, l kernels.Launch) error {
	s := g.e.work
	if err := s.usable(op); err != nil {
		return engineError(op, err)
	}
	return engineError(op, s.submit(op, g.d.launch(l, s.handle)))
}

// address returns a tensor's address as the kernels' arguments have it.
func (v *operandView) address() uint64 { return uint64(v.p) }
