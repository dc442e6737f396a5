package gpu

import (
	"errors"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Contract sums up products of a's and b's elements along pairs of axes. Both are
// folded to matrices, with the axes that are summed over as one.
func (g *Ops) Contract(a, b *tensor.Dense, aAxes, bAxes []int) (*tensor.Dense, bool, error) {
	defer operand.KeepAlive(a, b)
	var v [2]view
	if g == nil || !g.floatsOf(v[:], a, b) || max(len(v[0].shape), len(v[1].shape)) > kernels.MaxDims || !operand.Paired(v[0].shape, v[1].shape, aAxes, bAxes) {
		return nil, false, nil
	}
	restA, restB := operand.Rest(len(v[0].shape), aAxes), operand.Rest(len(v[1].shape), bAxes)
	var shape []int
	for _, axis := range restA {
		shape = append(shape, v[0].shape[axis])
	}
	for _, axis := range restB {
		shape = append(shape, v[1].shape[axis])
	}
	if len(shape) == 0 {
		shape = []int{1}
	}
	dst, err := g.fresh(v[0].dt, shape)
	if err != nil {
		return nil, true, err
	}
	if ok, err := g.contractTo(&dst, &v[0], &v[1], restA, aAxes, bAxes, restB); !ok || err != nil {
		return nil, ok, errors.Join(err, g.m.FreeTensor(dst.d))
	}
	return dst.d, true, nil
}

// contractTo computes the product of a, folded to rows of restA and columns of
// aAxes, and b, folded to rows of bAxes and columns of restB.
func (g *Ops) contractTo(dst, a, b *view, restA, aAxes, bAxes, restB []int) (bool, error) {
	x, tempX, err := g.folded(a, restA, aAxes)
	if err != nil {
		return true, err
	}
	y, tempY, err := g.folded(b, bAxes, restB)
	if err != nil {
		return true, errors.Join(err, g.free(tempX))
	}
	z := *dst
	z.shape = []int{x.shape[0], y.shape[1]}
	z.strides = []int{y.shape[1], 1}
	ok, err := g.matMul("Contract", &x, &y, &z)
	return ok, errors.Join(err, g.free(tempX, tempY))
}

// folded returns a tensor as a matrix whose rows go through some axes, and whose
// columns go through the others. The copy, or nil, has to be freed.
func (g *Ops) folded(v *view, rows, columns []int) (view, *tensor.Dense, error) {
	m := *v
	m.shape, m.strides = make([]int, 0, len(v.shape)), make([]int, 0, len(v.shape))
	size := [2]int{1, 1}
	for i, axes := range [][]int{rows, columns} {
		for _, axis := range axes {
			m.shape, m.strides = append(m.shape, v.shape[axis]), append(m.strides, v.strides[axis])
			size[i] *= v.shape[axis]
		}
	}
	var temp *tensor.Dense
	if !m.rowMajor() {
		c, err := g.materialized(&m)
		if err != nil {
			return view{}, nil, err
		}
		m, temp = c, c.d
	}
	m.shape, m.strides = size[:], []int{size[1], 1}
	return m, temp, nil
}
