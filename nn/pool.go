package nn

import (
	"cmp"
	"fmt"
	"math"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Window is how a pooling goes over images: windows of Size rows and columns
// begin Pad before the image, and each begins Stride after the last. A Stride of
// zero is one of 1. Elements of the padding are none: they count neither for a
// maximum nor for an average.
//
// An axis of n elements has (n + 2·Pad + Extra - Size)/Stride + 1 windows,
// rounded down before 1 is added.
type Window struct {
	Size, Pad, Stride [2]int
	Extra             [2]int // padding behind the image that is more, or less, than that before it
}

// MaxPool2d sets y to the largest element of each window of x. x has the shape
// N×C×H×W, and y N×C×windows×windows. NaN is not larger than a number. Where no
// element is above the lowest finite number, that is the result. y must not
// overlap x.
func MaxPool2d(e *cupool.Engine, x, y tensor.Tensor, w Window) error {
	return pool(e, "MaxPool2d", poolStep{kind: maxPool, Window: w}, x, y, nil, nil)
}

// MaxPool2dBack sets dx to the gradient of MaxPool2d by x. y is the result of
// MaxPool2d, and dy the gradient by it. Of equal elements of a window, the first
// one has the gradient. With an activation, x is act(u), and MaxPool2dBack sets dx
// to the gradient by u, as LinearBack does. dx must not overlap another tensor.
func MaxPool2dBack(e *cupool.Engine, x, y, dy, dx tensor.Tensor, w Window, act Activation) error {
	return pool(e, "MaxPool2dBack", poolStep{kind: maxPoolBack, Window: w, act: act}, x, y, dx, dy)
}

// AvgPool2d sets y to the sum of each window of x over divisor. A divisor of 0 is
// the number of the window's elements in the image. x has the shape N×C×H×W, and
// y N×C×windows×windows. y must not overlap x.
func AvgPool2d(e *cupool.Engine, x, y tensor.Tensor, w Window, divisor float64) error {
	return pool(e, "AvgPool2d", poolStep{kind: avgPool, Window: w, divisor: divisor}, x, y, nil, nil)
}

// AvgPool2dBack sets dx to the gradient of AvgPool2d by x. dy is the gradient by
// y. dx must not overlap dy.
func AvgPool2dBack(e *cupool.Engine, dy, dx tensor.Tensor, w Window, divisor float64) error {
	return pool(e, "AvgPool2dBack", poolStep{kind: avgPoolBack, Window: w, divisor: divisor}, nil, nil, dx, dy)
}

// GorgoniaAvgPool2dBack sets dx to what Gorgonia 0.9.18 has for the gradient of
// its AveragePool2D, whose divisor is the width W of dx. It is not that gradient: each
// window's number of dy goes to the window's last element, and then, in order, each
// element (r, c) becomes the sum over window (r, c) divided by W, where there is
// one. It is here for programs whose numbers are to be Gorgonia's. dx must not
// overlap dy.
func GorgoniaAvgPool2dBack(e *cupool.Engine, dy, dx tensor.Tensor, w Window) error {
	divisor := 1.
	if !operand.IsNil(dx) && dx.Dims() == 4 {
		divisor = float64(dx.Shape()[3])
	}
	return pool(e, "GorgoniaAvgPool2dBack", poolStep{kind: avgPoolSmear, Window: w, divisor: divisor}, nil, nil, dx, dy)
}

// Upsample2d sets y to x with every element repeated scale times in both
// directions. x has the shape N×C×H×W, and y N×C×(scale·H)×(scale·W). y must not
// overlap x.
func Upsample2d(e *cupool.Engine, x, y tensor.Tensor, scale int) error {
	return pool(e, "Upsample2d", poolStep{kind: avgPoolBack, Window: squares(scale), divisor: 1, whole: true}, nil, nil, y, x)
}

// Upsample2dBack sets dx to the gradient of Upsample2d by x. dy is the gradient
// by y. dx must not overlap dy.
func Upsample2dBack(e *cupool.Engine, dy, dx tensor.Tensor, scale int) error {
	return pool(e, "Upsample2dBack", poolStep{kind: avgPool, Window: squares(scale), divisor: 1, whole: true}, dy, dx, nil, nil)
}

// squares are windows side by side.
func squares(side int) Window {
	return Window{Size: [2]int{side, side}, Stride: [2]int{side, side}}
}

type poolKind int

// The kinds of pooling, and what they take of x, y, dx and dy. The result is dx
// or, without one, y.
const (
	maxPool      poolKind = iota // x, y
	maxPoolBack                  // all
	avgPool                      // x, y
	avgPoolBack                  // dx, dy
	avgPoolSmear                 // dx, dy
)

// poolStep is a kind of pooling with what it depends on.
type poolStep struct {
	kind poolKind
	Window
	divisor float64    // of averages
	act     Activation // of maxPoolBack
	whole   bool       // windows side by side that leave nothing of the image over
}

func pool(e *cupool.Engine, op string, s poolStep, x, y, dx, dy tensor.Tensor) error {
	defer operand.KeepAlive(x, y, dx, dy)
	image, result, out, in := x, y, y, []tensor.Tensor{x}
	if s.kind >= avgPoolBack {
		image, result = dx, dy
	}
	if !operand.IsNil(dx) {
		out, in = dx, []tensor.Tensor{x, y, dy}
	}
	p, err := s.over(op, image, result)
	if err == nil && s.whole && (p.H != p.OH*s.Size[0] || p.W != p.OW*s.Size[1]) {
		err = fail(op, fmt.Errorf("images of shape %v are not %d times as large as those of shape %v: %w", image.Shape(), s.Size[0], result.Shape(), cupool.ErrSizeMismatch))
	}
	if err != nil {
		return err
	}
	p.Divisor, p.Activation = s.divisor, layers.Activation(s.act)
	n, m, some := p.Planes*p.H*p.W, p.Planes*p.OH*p.OW, s.kind != maxPoolBack
	err = cmp.Or(s.act.fit(op), fit(e, op, image.Dtype(), want{x, n, some}, want{y, m, some}, want{dx, n, some}, want{dy, m, some}))
	if err == nil {
		err = fitApart(op, []tensor.Tensor{out}, in...)
	}
	if err != nil || out.Shape().TotalSize() == 0 {
		return err
	}
	if ok, err := poolOnGPU(tensorop.Of(e).GPU(), op, s.kind, p, x, y, dx, dy); ok {
		return err
	}
	return onHost(e, op, image, []tensor.Tensor{x, dy}, []tensor.Tensor{out}, poolOnHost[float32](s.kind, p), poolOnHost[float64](s.kind, p))
}

// over returns the pooling of images, N×C×H×W, whose results have the shape of
// result.
func (w Window) over(op string, image, result tensor.Tensor) (*layers.Pooling, error) {
	for _, t := range []tensor.Tensor{image, result} {
		if operand.IsNil(t) || t.Dims() != 4 {
			return nil, unsupported(op, "images of shape N×C×H×W are needed")
		}
	}
	s, r := image.Shape(), result.Shape()
	var windows [2]int
	for d := range windows {
		if w.Stride[d] == 0 {
			w.Stride[d] = 1
		}
		if w.Size[d] < 1 || w.Stride[d] < 1 || w.Pad[d] < 0 {
			return nil, unsupported(op, "windows %+v", w)
		}
		room := s[2+d] + 2*w.Pad[d] + w.Extra[d] - w.Size[d]
		if room < 0 {
			return nil, fail(op, fmt.Errorf("windows of %v in images of shape %v: %w", w.Size, s, cupool.ErrSizeMismatch))
		}
		windows[d] = room/w.Stride[d] + 1
	}
	if s[0] != r[0] || s[1] != r[1] || windows[0] != r[2] || windows[1] != r[3] {
		return nil, fail(op, fmt.Errorf("%d×%d windows of images of shape %v, and results of shape %v: %w", windows[0], windows[1], s, r, cupool.ErrSizeMismatch))
	}
	return &layers.Pooling{Planes: s[0] * s[1], H: s[2], W: s[3], OH: r[2], OW: r[3], Size: w.Size, Pad: w.Pad, Stride: w.Stride}, nil
}

func poolOnHost[T layers.Float](kind poolKind, p *layers.Pooling) hostStep {
	return func(in, out []*tensor.Dense) {
		x, dy, to := operand.Slice[T](in[0]), operand.Slice[T](in[1]), operand.Slice[T](out[0])
		switch kind {
		case maxPool:
			layers.MaxPool(p, x, to)
		case maxPoolBack:
			layers.MaxPoolBack(p, x, dy, to)
		case avgPool:
			layers.AvgPool(p, x, to)
		case avgPoolBack:
			layers.AvgPoolBack(p, dy, to)
		case avgPoolSmear:
			layers.AvgPoolSmear(p, dy, to)
		}
	}
}

// poolKernels are by poolKind.
var poolKernels = [...]kernels.Kernel{kernels.MaxPool, kernels.MaxPoolBack, kernels.AvgPool, kernels.AvgPoolBack, kernels.AvgPoolSmear}

func poolOnGPU(g *gpu.Ops, op string, kind poolKind, p *layers.Pooling, x, y, dx, dy tensor.Tensor) (bool, error) {
	args := kernels.PoolArgs{Planes: int64(p.Planes), H: int64(p.H), W: int64(p.W), OH: int64(p.OH), OW: int64(p.OW), Divisor: p.Divisor, Activation: int64(p.Activation)}
	for d := range args.Size {
		args.Size[d], args.Pad[d], args.Stride[d] = int64(p.Size[d]), int64(p.Pad[d]), int64(p.Stride[d])
		if max(p.Pad[d], p.Stride[d], p.Size[d]) > math.MaxInt32/4 { // the kernels divide places by strides in 32 bits
			return false, nil
		}
	}
	if max(p.H, p.W) > math.MaxInt32/4 || !g.Addresses([]*uint64{&args.X, &args.Y, &args.DX, &args.DY}, x, y, dx, dy) {
		return false, nil
	}
	n, t := p.Planes*p.OH*p.OW, y
	if !operand.IsNil(dx) {
		n, t = p.Planes*p.H*p.W, dx
	}
	if kind == avgPoolSmear {
		n = p.Planes
	}
	return true, g.Each(op, poolKernels[kind].Of(isDouble(t)), n, unsafe.Pointer(&args))
}
