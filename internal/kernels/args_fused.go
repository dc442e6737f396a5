package kernels

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
