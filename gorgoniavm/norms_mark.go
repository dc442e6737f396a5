package gorgoniavm

import (
	"math"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The running statistics of an operation are marked while a VM has newer ones. A
// mark is a NaN that no computation makes, so that the program's writing to the
// statistics is seen, and a reading of them is not taken for numbers.

const (
	mark32 = 0x7fc0c0de
	mark64 = 0x7ff80000c0dec0de
)

// mark marks statistics.
func mark(ts ...tensor.Tensor) {
	for _, t := range ts {
		switch xs := t.Data().(type) {
		case []float32:
			for i := range xs {
				xs[i] = math.Float32frombits(mark32)
			}
		case []float64:
			for i := range xs {
				xs[i] = math.Float64frombits(mark64)
			}
		}
	}
}

// isTaken reports whether an operation's running statistics are all marked.
func isTaken(op *gorgonia.BatchNormOp) bool {
	mean, variance := op.Stats()
	return isMarked(mean) && isMarked(variance)
}

func isMarked(t tensor.Tensor) bool {
	switch xs := t.Data().(type) {
	case []float32:
		return len(xs) > 0 && math.Float32bits(xs[0]) == mark32
	case []float64:
		return len(xs) > 0 && math.Float64bits(xs[0]) == mark64
	}
	return false
}
