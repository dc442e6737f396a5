package gorgoniavm_test

import (
	"fmt"
	"math"
	"slices"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/testkit"
)

// Operations of neural networks, and others that random graphs have.

// outer is an outer product, whose gradient in Gorgonia is none.
func (b *builder) outer() {
	a := b.pick()
	if len(a.shape) != 1 {
		return
	}
	c := b.like([]int{1 + b.N(4)})
	m, n := a.shape[0], c.shape[0]
	b.node(fmt.Sprintf("OuterProd(%s, %s)", a.name, c.name), []string{"product", "outer"}, []*term{a, c}, []int{m, n}, func() (*G.Node, error) { return G.OuterProd(a.n, c.n) },
		func(in [][]float64) []float64 { return matrixProducts(in[0], in[1], 1, m, 1, n) })
}

// image returns a term of four axes.
func (b *builder) image() *term {
	a := b.pick()
	if len(a.shape) != 4 {
		a = b.like([]int{1 + b.N(2), 1 + b.N(3), 1 + b.N(5), 1 + b.N(5)})
	}
	return a
}

// A window is a kernel that moves over images.
type window struct{ size, pad, stride, dilation [2]int }

// window chooses one that has an element of the image at least, and returns how many
// there are along each axis.
func (b *builder) window(a *term, dilates bool) (w window, out [2]int, ok bool) {
	for i := range 2 {
		w.size[i], w.stride[i], w.dilation[i] = 1+b.N(3), 1+b.N(3), 1
		if dilates && b.Chance(3) {
			w.dilation[i] = 2
		}
		w.pad[i] = b.N(w.size[i])
		rest := a.shape[2+i] + 2*w.pad[i] - (w.dilation[i]*(w.size[i]-1) + 1)
		if rest < 0 {
			return w, out, false
		}
		out[i] = rest/w.stride[i] + 1
	}
	return w, out, true
}

// each calls f with each element of a window that is at a place, or with -1 for those of the padding.
func (w window) each(shape []int, n, c, y, x int, f func(k, p int)) {
	testkit.Coordinates(w.size[:], func(k int, at []int) {
		i, j := y*w.stride[0]+at[0]*w.dilation[0]-w.pad[0], x*w.stride[1]+at[1]*w.dilation[1]-w.pad[1]
		p := -1
		if i >= 0 && j >= 0 && i < shape[2] && j < shape[3] {
			p = testkit.PlaceOf(shape, []int{n, c, i, j})
		}
		f(k, p)
	})
}

func (b *builder) maxPool() {
	a := b.image()
	w, out, ok := b.window(a, false)
	if !ok {
		return
	}
	shape := []int{a.shape[0], a.shape[1], out[0], out[1]}
	b.node(fmt.Sprintf("MaxPool2D(%s, %v, pad %v, stride %v)", a.name, w.size, w.pad, w.stride), []string{"pool", "Max"}, []*term{a}, shape, func() (*G.Node, error) {
		return G.MaxPool2D(a.n, tensor.Shape(w.size[:]), slices.Clone(w.pad[:]), slices.Clone(w.stride[:]))
	}, func(in [][]float64) []float64 {
		r := make([]float64, tensor.Shape(shape).TotalSize())
		testkit.Coordinates(shape, func(i int, at []int) {
			r[i] = math.Inf(-1)
			w.each(a.shape, at[0], at[1], at[2], at[3], func(_, p int) {
				if p >= 0 {
					r[i] = max(r[i], in[0][p])
				}
			})
		})
		return r
	})
}

func (b *builder) averagePool() {
	a := b.image()
	inner := a.shape[2] * a.shape[3]
	b.node(fmt.Sprintf("GlobalAveragePool2D(%s)", a.name), []string{"pool"}, []*term{a}, []int{a.shape[0], a.shape[1], 1, 1}, func() (*G.Node, error) { return G.GlobalAveragePool2D(a.n) },
		func(in [][]float64) []float64 {
			r := make([]float64, len(in[0])/inner)
			for i, x := range in[0] {
				r[i/inner] += x
			}
			for i := range r {
				r[i] /= float64(inner)
			}
			return r
		})
}

func (b *builder) upsample() {
	a := b.image()
	scale := 1 + b.N(3)
	shape := []int{a.shape[0], a.shape[1], a.shape[2] * scale, a.shape[3] * scale}
	b.node(fmt.Sprintf("Upsample2D(%s, %d)", a.name, scale), []string{"upsample"}, []*term{a}, shape, func() (*G.Node, error) { return G.Upsample2D(a.n, scale) },
		func(in [][]float64) []float64 {
			r := make([]float64, tensor.Shape(shape).TotalSize())
			testkit.Coordinates(shape, func(i int, at []int) {
				r[i] = in[0][testkit.PlaceOf(a.shape, []int{at[0], at[1], at[2] / scale, at[3] / scale})]
			})
			return r
		})
}

func (b *builder) im2col() {
	a := b.image()
	w, out, ok := b.window(a, true)
	if !ok {
		return
	}
	c, k := a.shape[1], w.size[0]*w.size[1]
	shape := []int{a.shape[0], out[0], out[1], c * k}
	b.node(fmt.Sprintf("Im2Col(%s, %v)", a.name, w), []string{"conv"}, []*term{a}, shape, func() (*G.Node, error) {
		return G.Im2Col(a.n, w.size[:], w.pad[:], w.stride[:], w.dilation[:])
	}, func(in [][]float64) []float64 {
		r := make([]float64, tensor.Shape(shape).TotalSize())
		testkit.Coordinates(shape[:3], func(i int, at []int) {
			for ch := range c {
				w.each(a.shape, at[0], ch, at[1], at[2], func(j, p int) {
					if p >= 0 {
						r[i*c*k+ch*k+j] = in[0][p]
					}
				})
			}
		})
		return r
	})
}

// convWide is a convolution with windows of any form.
func (b *builder) convWide() {
	a := b.image()
	w, out, ok := b.window(a, true)
	if !ok {
		return
	}
	c := a.shape[1]
	filter := b.like([]int{1 + b.N(3), c, w.size[0], w.size[1]})
	shape := []int{a.shape[0], filter.shape[0], out[0], out[1]}
	b.node(fmt.Sprintf("Conv2d(%s, %s, %v)", a.name, filter.name, w), []string{"conv"}, []*term{a, filter}, shape, func() (*G.Node, error) {
		return G.Conv2d(a.n, filter.n, tensor.Shape(w.size[:]), slices.Clone(w.pad[:]), slices.Clone(w.stride[:]), slices.Clone(w.dilation[:]))
	}, func(in [][]float64) []float64 {
		r := make([]float64, tensor.Shape(shape).TotalSize())
		testkit.Coordinates(shape, func(i int, at []int) {
			for ch := range c {
				w.each(a.shape, at[0], ch, at[2], at[3], func(j, p int) {
					v := 0.0
					if p >= 0 {
						v = in[0][p]
					}
					r[i] += v * in[1][(at[1]*c+ch)*w.size[0]*w.size[1]+j]
				})
			}
		})
		return r
	})
}

// batchNorm normalizes the channels of images, or the columns of a matrix.
func (b *builder) batchNorm() {
	a := b.pick()
	if len(a.shape) != 2 {
		a = b.image()
	}
	each := slices.Repeat([]int{1}, len(a.shape))
	c := a.shape[1]
	each[1] = c
	scale, bias := b.like(each), b.like(each)
	inner := tensor.Shape(a.shape[2:]).TotalSize()
	if len(a.shape) == 2 {
		inner = 1
	}
	b.node(fmt.Sprintf("BatchNorm(%s, %s, %s)", a.name, scale.name, bias.name), []string{"norm"}, []*term{a, scale, bias}, a.shape, func() (*G.Node, error) {
		y, _, _, _, err := G.BatchNorm(a.n, scale.n, bias.n, 0.9, 1e-3)
		return y, err
	}, func(in [][]float64) []float64 {
		r := make([]float64, len(in[0]))
		n := float64(len(r) / c)
		for ch := range c {
			var mean, variance float64
			for i, x := range in[0] {
				if i/inner%c == ch {
					mean += x / n
				}
			}
			for i, x := range in[0] {
				if i/inner%c == ch {
					variance += (x - mean) * (x - mean) / n
				}
			}
			for i, x := range in[0] {
				if i/inner%c == ch {
					r[i] = (x-mean)/math.Sqrt(variance+1e-3)*in[1][ch] + in[2][ch]
				}
			}
		}
		return r
	})
}

// sparsemax projects rows on the simplex.
func (b *builder) sparsemax() {
	a := b.pick()
	if len(a.shape) != 2 {
		return
	}
	n := a.shape[1]
	b.node(fmt.Sprintf("Sparsemax(%s)", a.name), []string{"sparsemax"}, []*term{a}, a.shape, func() (*G.Node, error) { return G.Sparsemax(a.n) }, func(in [][]float64) []float64 {
		r := make([]float64, len(in[0]))
		for row := 0; row < len(r); row += n {
			xs := slices.Sorted(slices.Values(in[0][row : row+n]))
			slices.Reverse(xs)
			sum, least := 0.0, 0.0
			for k, x := range xs {
				if sum += x; 1+float64(k+1)*x > sum {
					least = (sum - 1) / float64(k+1)
				}
			}
			for i, x := range in[0][row : row+n] {
				r[row+i] = math.Max(x-least, 0)
			}
		}
		return r
	})
}

// norm is the length along an axis.
func (b *builder) norm() {
	a := b.pick()
	if len(a.shape) < 2 {
		return
	}
	axis := b.N(len(a.shape))
	shape := slices.Delete(slices.Clone(a.shape), axis, axis+1)
	b.node(fmt.Sprintf("Norm(%s, %d, 2)", a.name, axis), []string{"length"}, []*term{a}, shape, func() (*G.Node, error) { return G.Norm(a.n, axis, 2) }, func(in [][]float64) []float64 {
		r := make([]float64, tensor.Shape(shape).TotalSize())
		testkit.Coordinates(a.shape, func(i int, at []int) {
			r[testkit.PlaceOf(shape, slices.Delete(slices.Clone(at), axis, axis+1))] += in[0][i] * in[0][i]
		})
		for i := range r {
			r[i] = math.Sqrt(r[i])
		}
		return r
	})
}

// keepDims is a sum that keeps its axes.
func (b *builder) keepDims() {
	a := b.pick()
	if len(a.shape) < 2 {
		return
	}
	left := b.N(2) == 0
	axis := len(a.shape) - 1
	if left {
		axis = 0
	}
	shape := slices.Clone(a.shape)
	shape[axis] = 1
	b.node(fmt.Sprintf("KeepDims(%s, %v, Sum %d)", a.name, left, axis), []string{"Sum"}, []*term{a}, shape, func() (*G.Node, error) {
		return G.KeepDims(a.n, left, func(n *G.Node) (*G.Node, error) { return G.Sum(n, axis) })
	}, func(in [][]float64) []float64 {
		r := make([]float64, tensor.Shape(shape).TotalSize())
		testkit.Coordinates(a.shape, func(i int, at []int) {
			to := slices.Clone(at)
			to[axis] = 0
			r[testkit.PlaceOf(shape, to)] += in[0][i]
		})
		return r
	})
}

// tensordot contracts the last axis of one with the first of another.
func (b *builder) tensordot() {
	a := b.pick()
	if len(a.shape) < 2 {
		return
	}
	k := a.shape[len(a.shape)-1]
	c := b.like([]int{k, 1 + b.N(3), 1 + b.N(3)}[:2+b.N(2)])
	outer, n := tensor.Shape(a.shape[:len(a.shape)-1]).TotalSize(), tensor.Shape(c.shape[1:]).TotalSize()
	shape := append(slices.Clone(a.shape[:len(a.shape)-1]), c.shape[1:]...)
	b.node(fmt.Sprintf("Tensordot([%d], [0], %s, %s)", len(a.shape)-1, a.name, c.name), []string{"product"}, []*term{a, c}, shape, func() (*G.Node, error) {
		return G.Tensordot([]int{len(a.shape) - 1}, []int{0}, a.n, c.n)
	}, func(in [][]float64) []float64 { return matrixProducts(in[0], in[1], 1, outer, k, n) })
}
