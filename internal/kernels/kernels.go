// Package kernels has the kernels that compute on a GPU: CUDA C++ in the .cu
// files, which build.sh compiles to the archive of package images, so that users
// need no nvcc. args.go has the structure that each kernel takes. The package knows
// nothing of CUDA's driver: package cuda launches the kernels.
package kernels

import (
	"iter"
	"unsafe"
)

// A Module is kernels that a driver compiles and loads together. Those that take
// it seconds are modules of their own, by type, so that only who needs them waits.
type Module int

// The modules. Base has the kernels that are in no other one.
const (
	Base Module = iota
	linearFloat
	linearDouble
	convFloat
	convDouble
	Modules // how many there are
)

// String returns the module's name, which its images have.
func (m Module) String() string {
	return [Modules]string{"kernels", "linear_f32", "linear_f64", "conv_f32", "conv_f64"}[m]
}

// Images yields what a device of a compute capability can load as a module, best
// first: machine code, if there is some for it, and PTX, which ends with a zero as
// the driver wants it. An image is decompressed when its turn comes.
type Images func(m Module, major, minor int) iter.Seq2[[]byte, error]

// A Kernel is the number of a kernel. Those of arithmetic come in pairs: the
// next one is the same for float64.
type Kernel int

// The kernels.
const (
	Binary Kernel = 2 * iota
	CompareSame
	CompareBool
	Unary
	ReduceRows
	ReduceColumns
	Arg
	SoftMax
	SoftMaxBack
	CrossEntropy
	Bias
	BiasBack
	Activate
	Linear
	ConvGather
	ConvWeights
	ConvSum
	ConvFinish
	Im2Col
	Col2Im
	MatMul
	SGD
	Adam
	RMSProp
	Random
	Dropout
	Binomial
	MaxPool
	MaxPoolBack
	AvgPool
	AvgPoolBack
	AvgPoolSmear
	NormMoments
	NormApply
	NormSums
	NormBack
	Convert
	SelectBack
	Sparsemax
	SparsemaxBack
	Fused
	CTC
	CTCTotal
	YOLO
	Copy // of elements of 1 byte; the next three are of 2, 4 and 8
)

// The rest that is not by type.
const (
	Select   Kernel = Copy + 4 // as Copy
	NextDraw        = Select + 4
	Count           = NextDraw + 1
)

// Of returns the kernel for float32 or, if double, float64.
func (k Kernel) Of(double bool) Kernel {
	if double {
		return k + 1
	}
	return k
}

// OfSize returns Copy or Select for elements of so many bytes; ok is false
// where there is none.
func (k Kernel) OfSize(bytes uintptr) (sized Kernel, ok bool) {
	switch bytes {
	case 1:
		return k, true
	case 2:
		return k + 1, true
	case 4:
		return k + 2, true
	case 8:
		return k + 3, true
	}
	return 0, false
}

// Module returns the module that has the kernel.
func (k Kernel) Module() Module {
	switch {
	case k >= Linear && k < Linear+2:
		return linearFloat + Module(k-Linear)
	case k >= ConvGather && k < Col2Im+2:
		return convFloat + Module((k-ConvGather)%2)
	}
	return Base
}

// Name returns the kernel's name in PTX.
func (k Kernel) Name() string {
	switch {
	case k >= NextDraw:
		return "next_draw"
	case k >= Select:
		return "select" + sizes[k-Select]
	case k >= Copy:
		return "copy" + sizes[k-Copy]
	case k%2 == 1:
		return names[k/2] + "_f64"
	}
	return names[k/2] + "_f32"
}

var (
	sizes = [...]string{"_1", "_2", "_4", "_8"}
	names = [...]string{"binary", "compare_same", "compare_bool", "unary", "reduce_rows", "reduce_columns", "arg",
		"softmax", "softmax_back", "cross_entropy", "bias", "bias_back", "activate", "linear",
		"conv", "conv_weights", "conv_sum", "conv_finish", "im2col", "col2im",
		"matmul", "sgd", "adam", "rmsprop", "random",
		"dropout", "binomial",
		"max_pool", "max_pool_back", "avg_pool", "avg_pool_back", "avg_pool_smear",
		"norm_moments", "norm_apply", "norm_sums", "norm_back",
		"convert", "select_back", "sparsemax", "sparsemax_back",
		"fused",
		"ctc", "ctc_total", "yolo",
	}
)

// A Launch is a kernel with its grid of X times Y blocks, threads a block, and
// its argument: a pointer to one of the structures of this package.
type Launch struct {
	Kernel      Kernel
	X, Y, Block int
	Args        unsafe.Pointer
}
