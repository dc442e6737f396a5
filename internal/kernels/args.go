package kernels

// The structures below are the kernels' arguments, field by field as in the
// .cu files. Every field has eight bytes.

// Limits of the structures.
const (
	MaxDims   = 8
	MaxParams = 16 // tensors that one optimizer step updates
)

// Walk is a way through a tensor, in elements.
type Walk struct {
	Dims   int64 // at least 1
	Shape  [MaxDims]int64
	Stride [MaxDims]int64
}

// Walk3 is the way through up to three tensors at once.
type Walk3 struct {
	Dims   int64
	Shape  [MaxDims]int64
	Stride [3][MaxDims]int64
}

// Operations of Binary.
const (
	Add = iota
	Sub
	Mul
	Div
	Pow
	Mod
	Min
	Max
)

// Operations of CompareSame and CompareBool.
const (
	Gt = iota
	Gte
	Lt
	Lte
	Eq
	Ne
)

// BinaryArgs are those of Binary, CompareSame and CompareBool.
type BinaryArgs struct {
	Dst, A, B   uint64  // A, B: 0 for the scalars
	VA, VB      float64 // the scalars
	Op, Incr, N int64   // Incr 1: add to Dst
	Walk        Walk3   // Dst, A, B
}

// Operations of Unary.
const (
	Neg = iota
	Inv
	Square
	Cube
	Exp
	Tanh
	Log
	Log2
	Log10
	Sqrt
	Cbrt
	InvSqrt
	Sign
	Abs
	Clamp
	Sigmoid
	ReLU
	Sin
	Cos
	Ceil
	Floor
	Log1p
	Expm1
	Softplus
	Same
)

// UnaryArgs are those of Unary.
type UnaryArgs struct {
	Dst, A      uint64
	P, Q        float64 // bounds of Clamp
	Op, Incr, N int64
	Walk        Walk3 // Dst, A
}

// ConvertArgs are those of Convert, of and to int64.
type ConvertArgs struct {
	Dst, A   uint64
	ToInt, N int64
}

// CopyArgs are those of Copy.
type CopyArgs struct {
	Dst, A uint64 // A 0: fill with Value
	Value  uint64
	N      int64
	Walk   Walk3 // Dst, A
}

// SelectArgs are those of Select: Dst[o, j, i] = A[o, Index[j], i], or bytes
// of 0xFF where the index is out of range.
type SelectArgs struct {
	Dst, A, Index          uint64 // Index: int64
	Outer, N, Picks, Inner int64
}

// SelectBackArgs are those of SelectBack: Dst[o, x, i] is the sum of G[o, j, i] over
// the j with Index[j] = x.
type SelectBackArgs struct {
	Dst, G, Index          uint64 // Index: int64
	Outer, N, Picks, Inner int64
}

// Operations of ReduceRows, ReduceColumns and, but for Sum, Arg.
const (
	Sum = iota
	Maximum
	Minimum
)

// ReduceArgs are those of ReduceRows, for neighbours along Inner, and
// ReduceColumns, for neighbours along Outer. Result o is of the N elements
// A[Outer(o)+Inner(r)]; Chunks of them are made side by side, each of Chunk
// elements.
type ReduceArgs struct {
	Dst, A                        uint64
	Op, Results, N, Chunk, Chunks int64
	Outer, Inner                  Walk
}

// ArgArgs are those of Arg; Dst is of int64.
type ArgArgs struct {
	Dst, A         uint64
	Op, Results, N int64
	Outer, Inner   Walk
}

// SoftMaxArgs are those of SoftMax and SoftMaxBack, whose A is the output and
// G the gradient by it.
type SoftMaxArgs struct {
	Dst, A, G           uint64
	Log, Rows, N, Inner int64
}

// SparsemaxArgs are those of Sparsemax, of A, and of SparsemaxBack, whose A is the
// output and G the gradient by it.
type SparsemaxArgs struct {
	Dst, A, G uint64
	Rows, N   int64
}

// CrossEntropyArgs are those of CrossEntropy.
type CrossEntropyArgs struct {
	Grad, Loss, X, Target  uint64 // Loss: one a row; 0: not wanted
	Scale                  float64
	Weights, Incr, Rows, N int64 // Weights 1: targets are weights, not int64 indices; Incr 1: add to Loss
}

// Activations of Bias and BiasBack.
const (
	ActNone = iota
	ActReLU
	ActSigmoid
	ActTanh
	ActRectify
)

// BiasArgs are those of Bias. Dst may be A.
type BiasArgs struct {
	Dst, A, B              uint64
	Activation, Rows, Cols int64
}

// BiasBackArgs are those of BiasBack. DX may be DY.
type BiasBackArgs struct {
	DX, DB, Y, DY          uint64 // DB 0: not wanted
	Activation, Rows, Cols int64
}

// A Product is c = a·b, M×N, from K products each, in row-major order without
// gaps. It becomes Act(c + Bias), the Bias being 0 without one, or with a Y,
// what the activation made, c times its slope there.
type Product struct {
	C, A, B                         uint64
	Bias, Y, Sums                   uint64 // 0: none. Sums: of b's columns, with Left
	Activation, Transposed, M, N, K int64
	Tile, Blocks                    int64 // Tile: see LinearTile
}

// Which of a Product's operands lies there as its transpose.
const (
	Neither = iota
	Right
	Left
)

// LinearThreads are a block's of Linear.
const LinearThreads = 256

// LinearTile returns the part of a product's result that a block makes, for a
// Product's Tile: 8, 16, 32 or 64 of float32, 32 or 64 of float64.
func LinearTile(tile int64, double bool) (rows, cols int64) {
	switch {
	case tile < 32:
		return tile, 32
	case tile == 32 && double:
		return 32, 32
	}
	return tile, 64
}

// LinearArgs are those of Linear. The second product may have no blocks.
type LinearArgs struct {
	P [2]Product
}

// MatMulArgs are those of MatMul: C = Alpha A·B + Beta C, M×N, from K products each,
// Batch times. Rows, columns and matrices of the batch are so many elements apart.
// X of the grid is one block for each square of MatMulSide rows and columns of C, Y
// is one for each matrix of the batch, or fewer.
type MatMulArgs struct {
	C, A, B                            uint64
	Alpha, Beta                        float64
	M, N, K, Batch                     int64
	ARow, AColumn, BRow, BColumn, CRow int64
	ANext, BNext, CNext                int64
}

// MatMulSide squared are the threads of a block of MatMul.
const MatMulSide = 16

// SGDArgs are those of SGD; Y of the grid is the number of tensors. RateAt, if
// not 0, is where the rate is in place of LR.
type SGDArgs struct {
	LR, Momentum, Decay float64
	RateAt              uint64
	P                   [MaxParams]struct {
		W, G, V uint64 // V 0: no momentum
		N       int64
	}
}

// AdamArgs are those of Adam; Y of the grid is the number of tensors. RateAt and
// StepAt, if not 0, are where the rate and the step's number are in place of LR
// and Step. Log1 and Log2 are the logarithms of Beta1 and Beta2.
type AdamArgs struct {
	LR, Step, Beta1, Beta2, Log1, Log2, Epsilon, Decay float64
	RateAt, StepAt                                     uint64
	P                                                  [MaxParams]struct {
		W, G, M, V uint64
		N          int64
	}
}

// RMSPropArgs are those of RMSProp; Y of the grid is the number of tensors.
// RateAt, if not 0, is where the rate is in place of LR.
type RMSPropArgs struct {
	LR, Rho, Epsilon, Decay, Clip float64 // Clip 0: gradients are not clamped
	RateAt                        uint64
	P                             [MaxParams]struct {
		W, G, V uint64
		N       int64
	}
}
