package gpu

import (
	"errors"
	"slices"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/tensorop/operand"
)

// A normStep is one of the steps that a norm consists of: a function of each element, or
// a reduction along axes.
type normStep struct {
	op   string
	axes []int
}

// normSteps returns the steps of a norm along axes, as tensor defines it; nil: those are none
// that there are kernels for, or it has none.
func normSteps(dims int, ord tensor.NormOrder, axes []int) []normStep {
	all := len(axes) == 0
	if all {
		for a := range dims {
			axes = append(axes, a)
		}
	}
	if len(axes) > 0 && (slices.Min(axes) < 0 || slices.Max(axes) >= dims) {
		return nil
	}
	squares := []normStep{{"Square", nil}, {"Sum", axes}, {"Sqrt", nil}}
	switch {
	case all && ord.IsUnordered():
		return squares
	case len(axes) == 1:
		switch {
		case ord.IsUnordered(), ord == tensor.Norm(2):
			return squares
		case ord == tensor.Norm(1):
			return []normStep{{"Abs", nil}, {"Sum", axes}}
		case ord.IsInf(1):
			return []normStep{{"Abs", nil}, {"Max", axes}}
		case ord.IsInf(-1):
			return []normStep{{"Abs", nil}, {"Min", axes}}
		}
	case len(axes) == 2 && axes[0] != axes[1]:
		sums := func(along, then int, op string) []normStep {
			if then > along {
				then--
			}
			return []normStep{{"Abs", nil}, {"Sum", []int{along}}, {op, []int{then}}}
		}
		rows, columns := axes[0], axes[1]
		switch {
		case ord.IsUnordered(), ord.IsFrobenius():
			return squares
		case ord == tensor.Norm(1):
			return sums(rows, columns, "Max")
		case ord == tensor.Norm(-1):
			return sums(rows, columns, "Min")
		case ord.IsInf(1):
			return sums(columns, rows, "Max")
		case ord.IsInf(-1):
			return sums(columns, rows, "Min")
		}
	}
	return nil
}

// Norm computes a norm along axes, or of all elements.
func (g *Ops) Norm(t *tensor.Dense, ord tensor.NormOrder, axes []int) (*tensor.Dense, bool, error) {
	if g == nil || t == nil {
		return nil, false, nil
	}
	var last *tensor.Dense // which is not t
	for _, step := range normSteps(t.Dims(), ord, axes) {
		from := t
		if last != nil {
			from = last
		}
		r, ok, err := g.normStep(step, from)
		err = errors.Join(err, g.free(last))
		if !ok || err != nil {
			return nil, ok, err
		}
		last = r.(*tensor.Dense)
	}
	return last, last != nil, nil
}

func (g *Ops) normStep(s normStep, t *tensor.Dense) (tensor.Tensor, bool, error) {
	if _, reduces := reductions[s.op]; reduces {
		return g.Reduce(s.op, t, s.axes)
	}
	return g.Function(s.op, t, &operand.Options{})
}
