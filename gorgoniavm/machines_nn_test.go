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

// noGradient marks terms of operations whose gradient, as Gorgonia has it, is none.
const noGradient = "no gradient"

// outer is an outer product, whose gradient in Gorgonia is none.
func (b *builder) outer() {
	a := b.pick()
	if len(a.shape) != 1 {
		return
	}
	c := b.like([]int{1 + b.N(4)})
	m, n := a.shape[0], c.shape[0]
	b.node(fmt.Sprintf("OuterProd(%s, %s)", a.name, c.name), []string{"product", noGradient}, []*term{a, c}, []int{m, n}, func() (*G.Node, error) { return G.OuterProd(a.n, c.n) },
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
	b.pooled(fmt.Sprintf("MaxPool2D(%s, %v, pad %v, stride %v)", a.name, w.size, w.pad, w.stride), a, w, out, func() (*G.Node, error) {
		return G.MaxPool2D(a.n, tensor.Shape(w.size[:]), slices.Clone(w.pad[:]), slices.Clone(w.stride[:]))
	})
}

// pooled has the largest element of each window.
func (b *builder) pooled(text string, a *term, w window, out [2]int, make func() (*G.Node, error)) {
	shape := []int{a.shape[0], a.shape[1], out[0], out[1]}
	b.node(text, []string{"pool", "Max"}, []*term{a}, shape, make, func(in [][]float64) []float64 {
		r := make64(shape)
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
	b.convolved(fmt.Sprintf("Conv2d(%s, %%s, %v)", a.name, w), a, w, out, func(filter *G.Node) (*G.Node, error) {
		return G.Conv2d(a.n, filter, tensor.Shape(w.size[:]), slices.Clone(w.pad[:]), slices.Clone(w.stride[:]), slices.Clone(w.dilation[:]))
	})
}

// convolved has the products of each window and filters.
func (b *builder) convolved(text string, a *term, w window, out [2]int, make func(filter *G.Node) (*G.Node, error)) {
	c := a.shape[1]
	filter := b.like([]int{1 + b.N(3), c, w.size[0], w.size[1]})
	shape := []int{a.shape[0], filter.shape[0], out[0], out[1]}
	b.node(fmt.Sprintf(text, filter.name), []string{"conv"}, []*term{a, filter}, shape, func() (*G.Node, error) { return make(filter.n) }, func(in [][]float64) []float64 {
		r := make64(shape)
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

// A batchNorm is a BatchNorm of a graph.
type batchNorm struct {
	x                     *term
	op                    *G.BatchNormOp
	channels, inner, each int // of elements of an image, and of those of a channel
	mean, variance        []float64
}

// channel returns which channel an element is of.
func (n *batchNorm) channel(i int) int { return i / n.inner % n.channels }

// moments returns the means of channels, and the variances.
func (n *batchNorm) moments(x []float64) (mean, variance []float64) {
	return moments(x, n.channels, n.channel)
}

// moments returns the means and the variances of groups of elements.
func moments(x []float64, groups int, groupOf func(i int) int) (mean, variance []float64) {
	mean, variance = make([]float64, groups), make([]float64, groups)
	size := float64(len(x) / groups)
	for i, x := range x {
		mean[groupOf(i)] += x / size
	}
	for i, x := range x {
		d := x - mean[groupOf(i)]
		variance[groupOf(i)] += d * d / size
	}
	return mean, variance
}

const (
	normEpsilon  = 1e-3
	normMomentum = 0.9
)

// scaledBy returns a scale and a bias for normalized elements: one for each channel, or for each element.
func (b *builder) scaledBy(a *term) (scale, bias *term) {
	each := slices.Repeat([]int{1}, len(a.shape))
	each[1] = a.shape[1]
	if b.Chance(4) {
		each = a.shape
	}
	return b.like(each), b.like(each)
}

// rescaled multiplies and adds.
func rescaled(r []float64, shape []int, scale, bias *term, in [][]float64) []float64 {
	r = repeats(scale.shape, shape, shape, func(x, y float64) float64 { return x * y })([][]float64{in[1], r})
	return repeats(shape, bias.shape, shape, func(x, y float64) float64 { return x + y })([][]float64{r, in[2]})
}

// normalize normalizes the channels of images, or the columns of a matrix.
func (b *builder) normalize() {
	a := b.pick()
	if len(a.shape) != 2 {
		a = b.image()
	}
	scale, bias := b.scaledBy(a)
	n := &batchNorm{x: a, channels: a.shape[1], inner: tensor.Shape(a.shape[2:]).TotalSize()}
	if len(a.shape) == 2 {
		n.inner = 1
	}
	n.each = tensor.Shape(a.shape).TotalSize() / n.channels
	for i := range n.channels { // of evaluation
		n.mean, n.variance = append(n.mean, float64(i%3)/4), append(n.variance, 1+float64(i%4)/2)
	}
	for _, other := range b.norms {
		if other.x == a { // Gorgonia takes them for one
			n = other
		}
	}
	var op *G.BatchNormOp
	t := b.node(fmt.Sprintf("BatchNorm(%s, %s, %s)", a.name, scale.name, bias.name), []string{"norm"}, []*term{a, scale, bias}, a.shape, func() (y *G.Node, err error) {
		y, _, _, op, err = G.BatchNorm(a.n, scale.n, bias.n, normMomentum, normEpsilon)
		return y, err
	}, func(in [][]float64) []float64 {
		mean, variance := n.mean, n.variance
		if !b.eval {
			mean, variance = n.moments(in[0])
		}
		r := make([]float64, len(in[0]))
		for i, x := range in[0] {
			r[i] = (x - mean[n.channel(i)]) / math.Sqrt(variance[n.channel(i)]+normEpsilon)
		}
		return rescaled(r, a.shape, scale, bias, in)
	})
	if t != nil && n.op == nil {
		n.op = op
		b.norms = append(b.norms, n)
	}
}

// groupNorm normalizes groups of channels.
func (b *builder) groupNorm() {
	a := b.pick()
	if len(a.shape) != 2 {
		a = b.image()
	}
	scale, bias := b.scaledBy(a)
	groups := 1 + b.N(a.shape[1])
	if a.shape[1]%groups != 0 {
		groups = a.shape[1]
	}
	if tensor.Shape(a.shape[1:]).TotalSize()/groups >= 264 {
		return // the moments of so many are others, as Gorgonia has them
	}
	b.node(fmt.Sprintf("GroupNorm(%s, %s, %s, %d)", a.name, scale.name, bias.name, groups), []string{"norm"}, []*term{a, scale, bias}, a.shape, func() (*G.Node, error) {
		return G.GroupNorm(a.n, scale.n, bias.n, groups, a.shape[1], normEpsilon)
	}, func(in [][]float64) []float64 {
		all := groups * a.shape[0]
		group := func(i int) int { return i / (len(in[0]) / all) }
		mean, variance := moments(in[0], all, group)
		r := make([]float64, len(in[0]))
		for i, x := range in[0] {
			r[i] = (x - mean[group(i)]) / math.Sqrt(variance[group(i)]+normEpsilon)
		}
		return rescaled(r, a.shape, scale, bias, in)
	})
}

// dropout drops elements, those that the machine says.
func (b *builder) dropout() {
	a := b.pick()
	if len(a.shape) == 0 {
		return
	}
	drop := []float64{0.25, 0.5, 0.75, 0}[b.N(4)]
	var t *term
	t = b.node(fmt.Sprintf("Dropout(%s, %v)", a.name, drop), []string{"dropout"}, []*term{a}, a.shape, func() (*G.Node, error) { return G.Dropout(a.n, drop) }, func(in [][]float64) []float64 {
		r := slices.Clone(in[0])
		for i := range r {
			switch {
			case b.eval:
			case b.seen[t] != nil && b.seen[t][i] == 0:
				r[i] = 0
			default:
				r[i] /= 1 - drop
			}
		}
		return r
	})
	if t == nil || slices.Contains(b.drawn, t) {
		return
	}
	b.drawn = append(b.drawn, t)
	t.slope = func(v, at [][]float64) []float64 { // which Gorgonia divides by the probability to drop
		r := slices.Clone(at[t.id])
		for i := range r {
			dropped := r[i] == 0
			switch {
			case drop == 0:
			case at[a.id][i] == 0: // dropped or not, to which Gorgonia looks
				r[i] = math.NaN()
			case !dropped:
				r[i] += (v[a.id][i] - at[a.id][i]) / drop
			}
		}
		return r
	}
}

// random is a node of random numbers, those that the machine says.
func (b *builder) random() {
	shape := b.shape()
	if len(shape) == 0 {
		return
	}
	kind := b.N(3)
	var t *term
	t = b.node(fmt.Sprintf("random numbers %d %v", kind, shape), []string{"random"}, nil, shape, func() (*G.Node, error) {
		switch kind {
		case 0:
			return G.UniformRandomNode(b.g, b.dt, 1, 2, shape...), nil
		case 1:
			return G.GaussianRandomNode(b.g, b.dt, 1, 2, shape...), nil
		}
		return G.BinomialRandomNode(b.g, b.dt, 5, 0.5, shape...), nil
	}, func([][]float64) []float64 {
		if b.seen[t] == nil {
			return make64(shape)
		}
		r := slices.Clone(b.seen[t])
		for i, x := range r {
			if kind == 0 && !(x >= 1 && x <= 2) || kind == 1 && !(math.Abs(x-1) < 14) || kind == 2 && !slices.Contains([]float64{0, 1, 2, 3, 4, 5}, x) {
				r[i] = 100 // which it cannot be
			}
		}
		return r
	})
	if t != nil && !slices.Contains(b.drawn, t) {
		b.drawn = append(b.drawn, t)
	}
}

// unevenPool is MaxPool2D with other paddings behind than before. Gorgonia begins as far
// out as it should end.
func (b *builder) unevenPool() {
	a := b.image()
	var w window
	var before, out [2]int
	for i := range 2 {
		w.size[i], w.stride[i], w.dilation[i] = 1+b.N(3), 1+b.N(3), 1
		before[i], w.pad[i] = b.N(w.size[i]), b.N(w.size[i])
		rest := a.shape[2+i] + before[i] + w.pad[i] - w.size[i]
		if rest < 0 {
			return
		}
		out[i] = rest/w.stride[i] + 1
	}
	pads := []int{before[0], w.pad[0], before[1], w.pad[1]}
	b.pooled(fmt.Sprintf("MaxPool2D(%s, %v, pads %v, stride %v)", a.name, w.size, pads, w.stride), a, w, out, func() (*G.Node, error) {
		return G.MaxPool2D(a.n, tensor.Shape(w.size[:]), slices.Clone(pads), slices.Clone(w.stride[:]))
	})
}

// meanPool is AveragePool2D, which divides by the width of the image. What Gorgonia has for its gradient is none.
func (b *builder) meanPool() {
	a := b.image()
	w, out, ok := b.window(a, false)
	if !ok {
		return
	}
	shape := []int{a.shape[0], a.shape[1], out[0], out[1]}
	b.node(fmt.Sprintf("AveragePool2D(%s, %v, pad %v, stride %v)", a.name, w.size, w.pad, w.stride), []string{"pool", noGradient}, []*term{a}, shape, func() (*G.Node, error) {
		return G.AveragePool2D(a.n, tensor.Shape(w.size[:]), slices.Clone(w.pad[:]), slices.Clone(w.stride[:]))
	}, func(in [][]float64) []float64 {
		r := make64(shape)
		testkit.Coordinates(shape, func(i int, at []int) {
			w.each(a.shape, at[0], at[1], at[2], at[3], func(_, p int) {
				if p >= 0 {
					r[i] += in[0][p] / float64(a.shape[3])
				}
			})
		})
		return r
	})
}

// alongLines is a convolution or a pool along lines.
func (b *builder) alongLines() {
	a := b.image()
	w, out, ok := b.window(a, true)
	w.size[0], w.pad[0], w.stride[0], w.dilation[0] = 1, 0, 1, 1
	out[0] = a.shape[2]
	if !ok {
		return
	}
	if b.N(2) == 0 {
		b.convolved(fmt.Sprintf("Conv1d(%s, %%s, %v)", a.name, w), a, w, out, func(filter *G.Node) (*G.Node, error) {
			return G.Conv1d(a.n, filter, w.size[1], w.pad[1], w.stride[1], w.dilation[1])
		})
		return
	}
	if w.dilation[1] > 1 {
		return
	}
	name, f := "MaxPool1D", G.MaxPool1D
	if b.N(2) == 0 {
		name, f = "AveragePool1D", G.AveragePool1D // which is the same
	}
	b.pooled(fmt.Sprintf("%s(%s, %v)", name, a.name, w), a, w, out, func() (*G.Node, error) { return f(a.n, w.size[1], w.pad[1], w.stride[1]) })
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
