package gorgoniavm

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// toScalar returns a Go value as gorgonia has it.
func toScalar(x any) (gorgonia.Value, error) {
	switch x := x.(type) {
	case float64:
		return gorgonia.NewF64(x), nil
	case float32:
		return gorgonia.NewF32(x), nil
	case int:
		return gorgonia.NewI(x), nil
	case int64:
		return gorgonia.NewI64(x), nil
	case int32:
		return gorgonia.NewI32(x), nil
	case byte:
		return gorgonia.NewU8(x), nil
	case bool:
		return gorgonia.NewB(x), nil
	}
	return nil, fmt.Errorf("a scalar of type %T: %w", x, ErrOperand)
}

// floatOf returns a scalar as a float64.
func floatOf(v gorgonia.Value) (float64, error) {
	switch x := v.Data().(type) {
	case float64:
		return x, nil
	case float32:
		return float64(x), nil
	}
	return 0, fmt.Errorf("a scalar of type %T: %w", v.Data(), ErrOperand)
}

// intOf returns a scalar as an int, cut off like gorgonia's.
func intOf(v gorgonia.Value) (int, error) {
	switch x := v.Data().(type) {
	case float64:
		return int(x), nil
	case float32:
		return int(x), nil
	case int:
		return x, nil
	case int64:
		return int(x), nil
	case int32:
		return int(x), nil
	case byte:
		return int(x), nil
	}
	return 0, fmt.Errorf("%T is no number of times: %w", v.Data(), ErrOperand)
}

// zeroOf returns the zero of a scalar's type.
func zeroOf(v gorgonia.Value) (gorgonia.Value, error) {
	switch v.(type) {
	case *gorgonia.F64:
		return gorgonia.NewF64(0), nil
	case *gorgonia.F32:
		return gorgonia.NewF32(0), nil
	}
	return nil, fmt.Errorf("the gradient of a %T: %w", v, ErrOperand)
}

// addScalars returns a + b.
func addScalars(a, b gorgonia.Value) (gorgonia.Value, error) {
	switch a := a.(type) {
	case *gorgonia.F64:
		if b, ok := b.(*gorgonia.F64); ok {
			return gorgonia.NewF64(float64(*a) + float64(*b)), nil
		}
	case *gorgonia.F32:
		if b, ok := b.(*gorgonia.F32); ok {
			return gorgonia.NewF32(float32(*a) + float32(*b)), nil
		}
	}
	return nil, fmt.Errorf("adding a %T to a %T: %w", b, a, ErrOperand)
}

// sumOfLogs returns the sum of log-probabilities: that of the rows' losses, with
// the other sign.
func sumOfLogs(losses *tensor.Dense) (gorgonia.Value, error) {
	switch rows := losses.Data().(type) {
	case []float64:
		return gorgonia.NewF64(-sumOf(rows)), nil
	case []float32:
		return gorgonia.NewF32(float32(-sumOf(rows))), nil
	}
	return nil, fmt.Errorf("losses of %v: %w", losses.Dtype(), ErrOperand)
}

func sumOf[T float32 | float64](xs []T) (sum float64) {
	for _, x := range xs {
		sum += float64(x)
	}
	return sum
}

// numberOf returns a scalar as a Go value that can be compared. false: v is no
// scalar, or it cannot be read without waiting for the device.
func numberOf(v gorgonia.Value) (any, bool) {
	if s, ok := v.(gorgonia.Scalar); ok {
		return s.Data(), true
	}
	d, ok := v.(*tensor.Dense)
	if !ok || d.MemSize() == 0 || !d.IsNativelyAccessible() || d.Shape().TotalSize() != 1 {
		return nil, false
	}
	return d.Get(0), true
}

func dense(v gorgonia.Value) (*tensor.Dense, error) {
	d, ok := v.(*tensor.Dense)
	if !ok {
		return nil, fmt.Errorf("an operand of type %T: %w", v, ErrOperand)
	}
	return d, nil
}

// pair returns two operands.
func pair(args []gorgonia.Value) (a, b *tensor.Dense, err error) {
	if a, err = dense(args[0]); err != nil {
		return nil, nil, err
	}
	b, err = dense(args[1])
	return a, b, err
}
