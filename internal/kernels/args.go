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
// Product's Tile: 4, 8, 16, 32 or 64 of float32, 32 or 64 of float64.
func LinearTile(tile int64, double bool) (rows, cols int64) {
	switch {
	case tile == 4:
		return 8, 16
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

// ActivateArgs are those of Activate: Dst becomes Act(A) or, with a Y, what the
// activation made, A times its slope there. Dst may be A.
type ActivateArgs struct {
	Dst, A, Y     uint64 // Y 0: none
	Activation, N int64
}

// ConvParts is the number of products that one launch of ConvGather makes.
const ConvParts = 4

// ConvLimit bounds what ConvGather and ConvWeights count.
const ConvLimit = 1 << 30

// A ConvPart is the pixels (i, j) of High×Wide of an image
//
//	Dst[n, row, i, j] = Σ W[row, c, ty, tx]·Src[n, c, i·MulY + FirstY + ty·StepY, ...]
//
// over channels c and taps. The source is 0 outside.
type ConvPart struct {
	High, Wide, TapsY, TapsX, FirstY, FirstX int64
	WFirst, DstFirst                         int64 // offsets of the first weight and pixel
}

// ConvArgs are those of ConvGather, whose grid has Splits blocks for each tile of
// the largest part in X, and the parts in Y. The result is Act(Dst + Bias) or, with
// a Y, what the activation made, Dst times its slope there. Sums in Splits make as
// many results, Size elements apart, without that. No tensor may have ConvLimit
// elements, and no coordinate be that far outside.
type ConvArgs struct {
	Dst, Src, W, Bias, Y                             uint64 // Bias, Y: 0 for none
	Activation, Batch, Rows, Channels, Height, Width int64  // Height, Width: of the source
	MulY, MulX, StepY, StepX                         int64
	WRow, WChannel, WTapY, WTapX                     int64
	DstPlane, DstRow, DstColumn                      int64
	Tile, Splits, Size                               int64 // Tile: index of ConvTiles
	Part                                             [ConvParts]ConvPart
}

// ConvFinishArgs are those of ConvFinish: Parts tensors of N sums become Dst, as
// ConvArgs has it. Each of Rows channels has Plane elements of an image.
type ConvFinishArgs struct {
	Dst, Sums, Bias, Y                uint64
	Activation, N, Parts, Rows, Plane int64
}

// ConvWindow is the sizes of a convolution as ConvWeights and Im2Col take them:
// of an image, of the result and of the window.
type ConvWindow struct {
	Channels, Height, Width, High, Wide                              int64
	TapsY, TapsX, PadY, PadX, StrideY, StrideX, DilationY, DilationX int64
}

// ConvWeightsArgs are those of ConvWeights, whose grid has a block for each tile in
// X, and for each Span of pixels in Y. Each makes its part of the sums: Rows of
// Columns, which are Taps and one more where the sums of DZ are wanted.
type ConvWeightsArgs struct {
	Sums, X, DZ uint64
	Batch, Rows int64
	ConvWindow
	Taps, Columns, Span int64
	Tile                int64 // index of ConvWeightsTiles
}

// ConvSumArgs are those of ConvSum: Parts of sums, each of Rows×Columns, become DW,
// of Rows×Taps, and DB. Lanes threads, a power of 2 up to 32, make an element. A
// block has ConvSumThreads.
type ConvSumArgs struct {
	DW, DB, Sums                      uint64
	Rows, Taps, Columns, Parts, Lanes int64
}

// ConvSumThreads are a block's of ConvSum.
const ConvSumThreads = 256

// Im2ColArgs are those of Im2Col and Col2Im, which make N elements.
type Im2ColArgs struct {
	X, Col uint64
	N      int64
	ConvWindow
}

// A ConvTile is the part of a product that a block makes, its threads, and how many
// products it sums at a time, a chunk. On an H200, a block alone takes Wait
// nanoseconds for that, and each of many that share a multiprocessor Busy.
type ConvTile struct{ Rows, Cols, Threads, Chunk, Wait, Busy int64 }

// ConvTiles returns the tiles of ConvGather.
func ConvTiles(double bool) []ConvTile {
	if double {
		return convTiles64
	}
	return convTiles32
}

// ConvWeightsTiles returns the tiles of ConvWeights.
func ConvWeightsTiles(double bool) []ConvTile {
	if double {
		return weightsTiles64
	}
	return weightsTiles32
}

var (
	convTiles32 = []ConvTile{{16, 128, 128, 16, 800, 320}, {32, 32, 64, 16, 690, 190}, {32, 64, 128, 16, 660, 310}, {32, 128, 128, 16, 1230, 490},
		{64, 32, 128, 16, 630, 270}, {64, 64, 256, 16, 750, 510}, {64, 64, 256, 16, 700, 500}}
	convTiles64    = []ConvTile{{16, 128, 128, 8, 800, 330}, {32, 32, 64, 8, 700, 170}, {32, 64, 128, 8, 600, 330}, {64, 64, 256, 8, 750, 510}}
	weightsTiles32 = []ConvTile{{32, 16, 128, 32, 350, 230}, {16, 64, 128, 32, 550, 380}, {32, 32, 128, 32, 500, 320}, {32, 64, 256, 32, 750, 620},
		{64, 64, 256, 32, 1000, 860}}
	weightsTiles64 = []ConvTile{{32, 16, 128, 8, 300, 120}, {16, 64, 64, 8, 400, 170}, {32, 32, 64, 8, 400, 170}, {32, 64, 128, 8, 450, 330}, {64, 64, 256, 8, 600, 510}}
)

// NormArgs are those of the kernels that normalize Channels, each of Plane
// elements in each sample of a Batch: NormMoments and NormApply one after the
// other, NormApply alone without Training, and NormSums and NormBack. A channel's
// elements are in Chunks, at most NormChunks, of Chunk each; a block works on one.
// Addresses of what is not wanted are 0.
type NormArgs struct {
	X, Y, DY, DX, Scale, Bias, DScale, DBias    uint64
	Mean, Inverse, RunningMean, RunningVariance uint64
	Parts                                       uint64 // two numbers for each chunk
	Batch, Channels, Plane, Chunk, Chunks       int64
	Momentum, Epsilon                           float64
	Training, Activation                        int64
}

// NormChunks are the most chunks of a channel.
const NormChunks = 32

// PoolArgs are those of the pooling kernels over Planes images: MaxPool and
// AvgPool, from X, H×W, to Y, OH×OW, MaxPoolBack, from X, Y and DY to DX,
// AvgPoolBack and AvgPoolSmear, from DY to DX. Window (r, c) begins at
// (r, c)·Stride - Pad. The sum of a window is divided by Divisor, or, if that is
// 0, by the number of the window's elements; AvgPoolSmear needs one.
type PoolArgs struct {
	X, Y, DX, DY         uint64
	Planes, H, W, OH, OW int64
	Size, Pad, Stride    [2]int64
	Divisor              float64
	Activation           int64
}

// CTCArgs are those of CTC, which has a block for a sample.
type CTCArgs struct {
	X, Targets, Lengths, TargetLengths uint64  // X: frames × samples × classes; the others int64
	Alpha, Beta, Losses, DX            uint64  // Alpha, Beta: work space; Losses: one a sample; DX 0: not wanted
	Scale                              float64 // of DX
	Frames, Samples, Classes           int64
	Count, Width                       int64 // of targets: all, and a row's; Width 0: they lie one after the other
}

// CTCTotalArgs are those of CTCTotal, which has one thread: the sum of losses or,
// with Mean, the mean of losses by target.
type CTCTotalArgs struct {
	Loss, Losses, TargetLengths uint64
	Mean, Samples               int64
}

// MaxBoxes are the most boxes of a cell.
const MaxBoxes = 16

// YOLOArgs are those of YOLO.
type YOLOArgs struct {
	Dst, A                      uint64
	Stride                      float64
	Sizes                       [2 * MaxBoxes]float64 // width and height of each box, in pixels
	Boxes, Attrs, Rows, Cols, N int64
}

// Limits of FusedArgs.
const (
	FusedInputs  = 24
	FusedScalars = 8
	FusedOutputs = 12
	FusedSteps   = 48
)

// FusedOperand is a tensor of rows and columns with strides in elements. A
// stride of 0 repeats elements.
type FusedOperand struct {
	P           uint64
	Row, Column int64
	Reg         int64 // that an output is taken from
}

// FusedArgs are those of Fused: a program that runs for each of N elements.
// Registers are the inputs, the scalars and the results of the steps, in this
// order. No output may share memory with an input or another output.
type FusedArgs struct {
	N, Columns, Inputs, Scalars, Outputs, Steps int64
	In                                          [FusedInputs]FusedOperand
	Out                                         [FusedOutputs]FusedOperand
	Scalar                                      [FusedScalars]float64
	Step                                        [FusedSteps]int64 // see FusedStep
}

// Operations of a step: those of Binary, FusedCompare and one of CompareSame's,
// FusedFunction and one of Unary's but for Clamp, FusedRectify, or FusedRectifyBack
// of what that made and the gradient by it.
const (
	FusedCompare     = 16
	FusedFunction    = 32
	FusedRectify     = 128
	FusedRectifyBack = 129
)

// FusedStep is a step with an operation and the registers that it reads.
func FusedStep(op, a, b int) int64 { return int64(op | a<<8 | b<<16) }

// The structures below are the arguments of the kernels of random.cu. DrawAt,
// if not 0, is where an int64 is that is added to Stream.

// RandomArgs are those of Random: uniform in [P, P+Q), or normal with mean P
// and deviation Q.
type RandomArgs struct {
	Dst, Seed, Stream, DrawAt uint64
	P, Q                      float64
	Normal, N                 int64
}

// DropoutArgs are those of Dropout. Dst may be A.
type DropoutArgs struct {
	Dst, A, Seed, Stream, DrawAt uint64
	Keep, Scale                  float64 // the probability, and what is kept is multiplied by
	N                            int64
}

// BinomialArgs are those of Binomial.
type BinomialArgs struct {
	Dst, Seed, Stream, DrawAt uint64
	P                         float64
	Trials, N                 int64
}

// NextDrawArgs are those of NextDraw, which has one thread.
type NextDrawArgs struct {
	Draw uint64
}
