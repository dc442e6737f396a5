// Package nn has the fused steps of training over a cupool.Engine: layers,
// pooling, normalizations, losses, optimizers and random numbers. Each step does the work of several
// operations of package tensor in one pass over the memory. A step allocates
// nothing in the pool unless its comment says so. It runs where the engine
// computes: on the CPU, or on a GPU in the order of the engine's stream, without
// waiting.
//
// All tensors of a step have the type float32, or all have float64. They belong
// to one engine and lie in row-major order without gaps. For other tensors a step
// fails with a *cupool.EngineError around ErrNotSupported, ErrSizeMismatch or
// ErrUseAfterFree, and has changed nothing. Where the device fails, a step fails
// with a *cupool.EngineError around the device's error. Several goroutines may run
// steps at once if none writes to a tensor that another one uses.
package nn

import (
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/tensorop"
)

// fail returns err as an error of the engine, and nil for nil.
func fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &cupool.EngineError{Op: op, Err: err}
}

// hostStep computes a step on the CPU, on host twins of its tensors (InPlace).
type hostStep func(in, out []*tensor.Dense)

// onHost has the CPU compute a step on tensors of like's type.
func onHost(e *cupool.Engine, op string, like tensor.Tensor, in, out []tensor.Tensor, single, double hostStep) error {
	if isDouble(like) {
		single = double
	}
	return tensorop.Of(e).InPlace(op, in, out, single)
}
