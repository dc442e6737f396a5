package gpu

import (
	"unsafe"

	"github.com/cupool/cupool/internal/kernels"
)

// FusedArgs are a program of elementwise operations with its operands.
type FusedArgs = kernels.FusedArgs

// FusedOperand is a part of a tensor that a program reads or writes.
type FusedOperand = kernels.FusedOperand

// The most that a program has.
const (
	FusedInputs  = kernels.FusedInputs
	FusedScalars = kernels.FusedScalars
	FusedOutputs = kernels.FusedOutputs
	FusedSteps   = kernels.FusedSteps
)

// fusedFunctions are operations of a program that the Engine has no method for.
var fusedFunctions = map[string]int64{
	"Sigmoid": kernels.Sigmoid, "Sin": kernels.Sin, "Cos": kernels.Cos, "Ceil": kernels.Ceil, "Floor": kernels.Floor,
	"Log1p": kernels.Log1p, "Expm1": kernels.Expm1, "Softplus": kernels.Softplus, "Copy": kernels.Same,
}

// fusedRectify are Rectify and its gradient, of the result and the gradient by it.
var fusedRectify = map[string]int{"Rectify": kernels.FusedRectify, "RectifyBack": kernels.FusedRectifyBack}

// FusedStep returns a step of a program, by the name of the Engine's method or of
// the function, and the registers that it reads. Comparisons make ones and zeros.
// The name has to be one of them.
func FusedStep(name string, a, b int) int64 {
	if f, ok := functions[name]; ok {
		return kernels.FusedStep(kernels.FusedFunction+int(f), a, b)
	}
	if f, ok := fusedFunctions[name]; ok {
		return kernels.FusedStep(kernels.FusedFunction+int(f), a, b)
	}
	if op, ok := fusedRectify[name]; ok {
		return kernels.FusedStep(op, a, b)
	}
	o := binaries[name]
	if o.kernel == kernels.CompareBool {
		return kernels.FusedStep(kernels.FusedCompare+int(o.op), a, b)
	}
	return kernels.FusedStep(int(o.op), a, b)
}

// fusedBlock is a block's threads of Fused: few, so that small tensors keep
// more of a GPU busy.
const fusedBlock = 128

// Fused launches a program of elementwise operations. All operands have to be
// memory of this engine.
func (g *Ops) Fused(op string, double bool, args *FusedArgs) error {
	return g.Launch(op, kernels.Launch{Kernel: kernels.Fused.Of(double), X: Blocks(int(args.N), fusedBlock), Y: 1, Block: fusedBlock, Args: unsafe.Pointer(args)})
}
