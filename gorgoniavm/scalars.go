package gorgoniavm

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Scalars of a graph are Go values (gorgonia.F32 and so on), on every device:
// operations between them run on the CPU, and those of a tensor with a scalar
// take it as an argument.

// scalarOf reads a tensor of one element, which waits for the device.
func (m *VM) scalarOf(d *tensor.Dense) (gorgonia.Value, error) {
	if d.Shape().TotalSize() != 1 {
		return nil, fmt.Errorf("a tensor of shape %v is no scalar: %w", d.Shape(), ErrOperand)
	}
	if !m.e.AllocAccessible() {
		h, err := m.e.ToHost(d)
		if err != nil {
			return nil, err
		}
		d = h
	} else if _, err := m.e.Accessible(d); err != nil {
		return nil, err
	}
	return toScalar(d.Get(0))
}

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

// oneOf returns 1 as tensor takes it.
func oneOf(dt tensor.Dtype) (any, error) {
	switch dt {
	case tensor.Float64:
		return float64(1), nil
	case tensor.Float32:
		return float32(1), nil
	}
	return nil, fmt.Errorf("a %v: %w", dt, ErrOperand)
}
