// Package gpu computes the operations of tensors on a GPU, with the kernels of
// internal/kernels and with cuBLAS, where there is one. It launches work on a stream and waits for
// none of it.
package gpu

import (
	"errors"
	"slices"
	"sync/atomic"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Memory is the engine whose tensors are computed with.
type Memory interface {
	// OnDevice reports whether t, which is not empty, is a tensor of this engine
	// in live memory that the CPU cannot touch.
	OnDevice(t *tensor.Dense) bool
	// Empty returns a new tensor whose elements are undefined.
	Empty(dt tensor.Dtype, shape ...int) (*tensor.Dense, error)
	// FromHost returns a copy of t in the engine's memory.
	FromHost(t tensor.Tensor) (*tensor.Dense, error)
	// FreeTensor gives the memory of t, which is whole, back.
	FreeTensor(t tensor.Tensor) error
	// Read copies memory to dst, in stream order, and waits for that.
	Read(dst []byte, p device.Ptr) error

	// Scratch returns n bytes of memory for what is submitted next. FreeScratch
	// gives them back once it is submitted.
	Scratch(n int64) (device.Ptr, error)
	FreeScratch(p device.Ptr, n int64) error
	// Begin returns the engine's stream and the one that takes its work,
	// which is another within a Fork. Neither is closed before Submitted. It fails
	// once the stream is closed.
	Begin(op string) (own, work device.Stream, err error)
	// Submitted ends what Begin began. It returns what is to be told of the
	// device's err, or nil where that is nil.
	Submitted(op string, err error) error
	// Capturing reports whether work is captured in place of being run. What
	// copies from or to the host fails then.
	Capturing() bool
	// Error returns err as an error of the engine, and nil for nil.
	Error(op string, err error) error
	// Warn tells the program's log something, if there is one.
	Warn(message string, err error)
}

// Ops are the operations of one engine on its GPU. Each method returns false
// where it does not serve: for operands that are not all of floats and in this
// engine's memory, for shapes that do not fit, and for the rare forms. Then
// the operation is computed on copies in host memory, which also says what is
// wrong with it. The methods of a nil *Ops serve nothing.
//
// gpu.go has operands and launches, walk.go the ways through operands; each
// other file has the operations of some kernels.
type Ops struct {
	m    Memory
	d    Device
	tf32 bool
	slow atomic.Bool // products are computed without cuBLAS, and the log was told
}

// New returns the operations of m on d, whose kernels are loaded. With tf32,
// products of float32 may round their operands to TF32.
func New(m Memory, d Device, tf32 bool) *Ops { return &Ops{m: m, d: d, tf32: tf32} }

// operandOf returns a tensor as kernels see it; false if it is none for them.
func (g *Ops) operandOf(t tensor.Tensor) (view, bool) {
	d, ok := t.(*tensor.Dense)
	if !ok || d == nil || d.IsMasked() || d.MemSize() == 0 {
		return view{}, false
	}
	v := view{d: d, p: device.Ptr(d.Uintptr()), dt: d.Dtype(), shape: d.Shape(), strides: operand.Strides(d), n: d.Shape().TotalSize()}
	if v.n == 1 {
		v.strides = ones[:min(len(v.shape), len(ones))]
	}
	if len(v.strides) != len(v.shape) { // of more axes than kernels have
		return view{}, false
	}
	return v, g.m.OnDevice(d)
}

var ones = [kernels.MaxDims]int{1, 1, 1, 1, 1, 1, 1, 1}

// floatsOf is operandOf for tensors of float32 or float64, all of one type.
func (g *Ops) floatsOf(vs []view, ts ...tensor.Tensor) bool {
	for i, t := range ts {
		v, ok := g.operandOf(t)
		if !ok || !v.isFloat() || i > 0 && v.dt != vs[0].dt {
			return false
		}
		vs[i] = v
	}
	return true
}

// view is a tensor in device memory. Strides are in elements.
type view struct {
	d              *tensor.Dense
	p              device.Ptr
	dt             tensor.Dtype
	shape, strides []int
	n              int // elements
}

func (v *view) isFloat() bool { return v.dt == tensor.Float32 || v.dt == tensor.Float64 }
func (v *view) double() bool  { return v.dt == tensor.Float64 }

// rowMajor reports whether the elements lie one after the other in row-major
// order.
func (v *view) rowMajor() bool {
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
func (v *view) clashes(w *view) bool {
	if !v.overlaps(w) {
		return false
	}
	return v.p != w.p || v.dt.Size() != w.dt.Size() || !slices.Equal(v.shape, w.shape) || !slices.Equal(v.strides, w.strides)
}

// overlaps reports whether they share memory.
func (v *view) overlaps(w *view) bool {
	return v.p < w.end() && w.p < v.end()
}

// end is where the memory between the first and the last element ends. v.d may
// have more, or less.
func (v *view) end() device.Ptr {
	last := 0
	for d, size := range v.shape {
		last += (size - 1) * v.strides[d]
	}
	return v.p + device.Ptr(last+1)*device.Ptr(v.dt.Size())
}

// fresh returns a new tensor for a result.
func (g *Ops) fresh(dt tensor.Dtype, shape []int) (view, error) {
	d, err := g.m.Empty(dt, shape...)
	if err != nil {
		return view{}, err
	}
	return view{d: d, p: device.Ptr(d.Uintptr()), dt: dt, shape: d.Shape(), strides: strides(d), n: d.Shape().TotalSize()}, nil
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
func (g *Ops) output(a *view, o *operand.Options, dt tensor.Dtype, shape []int) (dst view, incr, ok bool, err error) {
	var t tensor.Tensor
	switch {
	case o.Fresh():
		dst, err = g.fresh(dt, shape)
		return dst, false, true, err
	case o.Incr != nil && o.Reuse == nil:
		t, incr = o.Incr, true
	case o.Reuse != nil && o.Incr == nil:
		t = o.Reuse
	case o.Unsafe && a != nil:
		t = a.d
	default:
		return dst, false, false, nil
	}
	dst, ok = g.operandOf(t)
	return dst, incr, ok && dst.dt == dt && slices.Equal(dst.shape, shape), nil
}

// drop frees the output of an operation that failed or is not served, if it is
// new.
func (g *Ops) drop(dst *view, o *operand.Options) {
	if o.Fresh() && dst.d != nil {
		_ = g.m.FreeTensor(dst.d) // it is live and whole
	}
}

// finish returns the output of an operation that was launched, or drops it where
// that failed.
func (g *Ops) finish(dst *view, o *operand.Options, err error) (tensor.Tensor, bool, error) {
	if err != nil {
		g.drop(dst, o)
		return nil, true, err
	}
	return dst.d, true, nil
}

// ElementSize returns the bytes of an element.
func ElementSize(double bool) int64 {
	if double {
		return 8
	}
	return 4
}

// Threads of a block for kernels that go over elements, of a warp, and of the
// largest block. maxGrid is the most blocks: enough to fill any GPU, and each
// thread does several elements.
const (
	Block    = 256
	Warp     = 32
	MaxBlock = 1024
	maxGrid  = 4096
)

// Each launches a kernel over n elements.
func (g *Ops) Each(op string, k kernels.Kernel, n int, args unsafe.Pointer) error {
	return g.Launch(op, kernels.Launch{Kernel: k, X: Blocks(n, Block), Y: 1, Block: Block, Args: args})
}

// Blocks returns how many blocks of so many elements n elements need.
func Blocks(n, each int) int { return max(1, min((n+each-1)/each, maxGrid)) }

// Launch launches a kernel on the engine's stream.
func (g *Ops) Launch(op string, l kernels.Launch) error { return g.m.Error(op, g.launch(op, l)) }

func (g *Ops) launch(op string, l kernels.Launch) error {
	_, s, err := g.m.Begin(op)
	if err != nil {
		return err
	}
	return g.m.Submitted(op, g.d.LaunchKernel(l, s))
}

// WithScratch calls f with n bytes of memory for what f launches.
func (g *Ops) WithScratch(op string, n int64, f func(at uint64) error) error {
	at, err := g.m.Scratch(n)
	if err != nil {
		return g.m.Error(op, err)
	}
	return errors.Join(f(uint64(at)), g.m.Error(op, g.m.FreeScratch(at, n)))
}

// address returns a tensor's address as the kernels' arguments have it.
func (v *view) address() uint64 { return uint64(v.p) }

// Addresses fills in where tensors are, 0 for nil. It returns false unless all
// of them are device memory of this engine.
func (g *Ops) Addresses(to []*uint64, ts ...tensor.Tensor) bool {
	if g == nil {
		return false
	}
	for i, t := range ts {
		if operand.IsNil(t) {
			continue
		}
		v, ok := g.operandOf(t)
		if !ok {
			return false
		}
		*to[i] = v.address()
	}
	return true
}
