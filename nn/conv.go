package nn

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Conv describes a convolution of images: the size of its window, by how many
// zeros images are padded on each side, how far the window moves, and how far apart
// its elements are. Each is along height and width. A Stride or Dilation of 0 means
// 1. Steps take no Kernel, Pad or Dilation above math.MaxInt32. A convolution in one
// dimension is one of images of height 1.
type Conv struct{ Kernel, Pad, Stride, Dilation [2]int }

// Out returns the height and width of the result for images of a height and width,
// as Gorgonia computes them. They are below 1 where the window is larger than an
// image with its padding by a stride or more. A window that is larger by less has one
// result, as if there were zeros behind the image.
func (c Conv) Out(h, w int) (oh, ow int) {
	c = c.whole()
	size := [2]int{h, w}
	for i := range size {
		size[i] = (size[i]+2*c.Pad[i]-(c.Dilation[i]*(c.Kernel[i]-1)+1))/c.Stride[i] + 1
	}
	return size[0], size[1]
}

// whole returns c with 1 in place of what is 0 for 1.
func (c Conv) whole() Conv {
	for i := range 2 {
		if c.Stride[i] == 0 {
			c.Stride[i] = 1
		}
		if c.Dilation[i] == 0 {
			c.Dilation[i] = 1
		}
	}
	return c
}

// Conv2d sets y to act(x * w + bias), the convolution of a batch of images. x has
// the shape N×C×H×W, and w O×C×KH×KW, where KH×KW is c.Kernel. y, of N×O×OH×OW, has
// the sizes that c.Out returns. bias has O elements, or is nil for none. As in
// Gorgonia, padding is multiplied like other elements, so that next to it an
// infinite weight makes NaN. y must not overlap the other tensors. Where c.Out
// returns sizes below 1, it is an ErrSizeMismatch. A GPU computes it in one launch. A CPU
// computes it from a copy of all windows.
func Conv2d(e *cupool.Engine, x, w, bias, y tensor.Tensor, c Conv, act Activation) error {
	defer operand.KeepAlive(x, w, bias, y)
	const op = "Conv2d"
	s, err := convolution(e, op, x, w, c)
	if err == nil {
		err = cmp.Or(act.fit(op), fit(e, op, x.Dtype(), want{bias, s.out, true}, want{t: y, n: s.results()}))
	}
	if err == nil {
		err = fitApart(op, []tensor.Tensor{y}, x, w, bias)
	}
	if err != nil || s.results() == 0 {
		return err
	}
	if ok, err := convOnGPU(tensorop.Of(e).GPU(), op, s, x, w, bias, y, act); ok {
		return err
	}
	var failed error
	err = onHost(e, op, x, []tensor.Tensor{x, w, bias}, []tensor.Tensor{y}, convOnHost[float32](s, act, &failed), convOnHost[float64](s, act, &failed))
	return errors.Join(err, fail(op, failed))
}

// Conv2dBack computes the gradients of a convolution. dz is the gradient by x * w +
// bias. Conv2dBack sets dw and db, which have the sizes of w and bias, to the
// gradients by w and bias. With an activation, x is act(u), and Conv2dBack sets dx
// to the gradient by u, as LinearBack does. With NoActivation dx is the gradient by
// x. Any of dx, dw and db may be nil. None may overlap another tensor. Next to
// padding, infinite weights may make NaN in dx on a GPU. For dw and db, a GPU takes
// memory of the pool for its partial sums, and gives it back. Their order is the
// same each time.
func Conv2dBack(e *cupool.Engine, x, w, dz, dx, dw, db tensor.Tensor, c Conv, act Activation) error {
	defer operand.KeepAlive(x, w, dz, dx, dw, db)
	const op = "Conv2dBack"
	s, err := convolution(e, op, x, w, c)
	if err == nil {
		err = cmp.Or(act.fit(op), fit(e, op, x.Dtype(), want{t: dz, n: s.results()}, want{dx, s.n * s.Image(), true}, want{dw, s.out * s.Products(), true}, want{db, s.out, true}))
	}
	if err == nil {
		err = fitApart(op, []tensor.Tensor{dx, dw, db}, x, w, dz)
	}
	switch {
	case err != nil || operand.IsNil(dx) && operand.IsNil(dw) && operand.IsNil(db):
		return err
	case s.results() == 0:
		return fail(op, errors.Join(e.Zero(dx), e.Zero(dw), e.Zero(db)))
	}
	if ok, err := convBackOnGPU(tensorop.Of(e).GPU(), op, s, x, w, dz, dx, dw, db, act); ok {
		return err
	}
	var failed error
	err = onHost(e, op, x, []tensor.Tensor{x, w, dz}, []tensor.Tensor{dx, dw, db}, convBackOnHost[float32](s, act, &failed), convBackOnHost[float64](s, act, &failed))
	return errors.Join(err, fail(op, failed))
}

// Im2Col sets col, of N×OH×OW×(C·KH·KW), to the windows of images x, of N×C×H×W:
// the convolution's result is the product of col and the weights. Windows have zeros
// where they reach outside the image. col must not overlap x.
func Im2Col(e *cupool.Engine, x, col tensor.Tensor, c Conv) error {
	return columns(e, "Im2Col", x, col, c, false)
}

// Col2Im sets x, images of N×C×H×W, to the sums of the elements that Im2Col makes
// of each. So it turns the gradient by col into that by x. x must not overlap col.
func Col2Im(e *cupool.Engine, col, x tensor.Tensor, c Conv) error {
	return columns(e, "Col2Im", x, col, c, true)
}

func columns(e *cupool.Engine, op string, x, col tensor.Tensor, c Conv, back bool) error {
	defer operand.KeepAlive(x, col)
	s, err := windows(e, op, x, c)
	if err == nil {
		err = fit(e, op, x.Dtype(), want{t: col, n: s.n * s.Pixels() * s.Products()})
	}
	from, to := x, col
	if back {
		from, to = col, x
	}
	if err == nil {
		err = fitApart(op, []tensor.Tensor{to}, from)
	}
	if err != nil || to.Shape().TotalSize() == 0 {
		return err
	}
	if ok, err := columnsOnGPU(tensorop.Of(e).GPU(), op, s, x, col, back); ok {
		return err
	}
	return onHost(e, op, x, []tensor.Tensor{from}, []tensor.Tensor{to}, columnsOnHost[float32](s, back), columnsOnHost[float64](s, back))
}

// convSize is the sizes of a convolution: of its window, of the batch, and the
// channels of the result.
type convSize struct {
	layers.Window
	n, out int
}

// results returns the number of elements of the result.
func (s *convSize) results() int { return s.n * s.out * s.Pixels() }

// windows returns the sizes of images x and of a window over them. It fails if they
// do not fit.
func windows(e *cupool.Engine, op string, x tensor.Tensor, c Conv) (convSize, error) {
	c = c.whole()
	var s convSize
	if operand.IsNil(x) || x.Dims() != 4 {
		return s, unsupported(op, "images of four dimensions are needed")
	}
	if min(c.Kernel[0], c.Kernel[1], c.Stride[0], c.Stride[1], c.Dilation[0], c.Dilation[1]) < 1 || min(c.Pad[0], c.Pad[1]) < 0 ||
		max(c.Kernel[0], c.Kernel[1], c.Pad[0], c.Pad[1], c.Dilation[0], c.Dilation[1]) > math.MaxInt32 { // whose products overflow
		return s, unsupported(op, "a convolution of %+v", c)
	}
	shape := x.Shape()
	s.n, s.Channels, s.In = shape[0], shape[1], [2]int{shape[2], shape[3]}
	s.Taps, s.Pad, s.Stride, s.Dilation = c.Kernel, c.Pad, c.Stride, c.Dilation
	s.Out[0], s.Out[1] = c.Out(s.In[0], s.In[1])
	if min(s.Out[0], s.Out[1]) < 1 {
		return s, fail(op, fmt.Errorf("%+v is larger than an image of %v: %w", c, shape, cupool.ErrSizeMismatch))
	}
	return s, fit(e, op, x.Dtype(), want{t: x, n: shape.TotalSize()})
}

// convolution returns the sizes of the convolution of images x with the weights w.
func convolution(e *cupool.Engine, op string, x, w tensor.Tensor, c Conv) (convSize, error) {
	s, err := windows(e, op, x, c)
	if err != nil {
		return s, err
	}
	if operand.IsNil(w) || w.Dims() != 4 {
		return s, unsupported(op, "weights of four dimensions are needed")
	}
	s.out = w.Shape()[0]
	if !w.Shape().Eq(tensor.Shape{s.out, s.Channels, s.Taps[0], s.Taps[1]}) {
		return s, fail(op, fmt.Errorf("weights of %v for images of %v and a window of %v: %w", w.Shape(), x.Shape(), s.Taps, cupool.ErrSizeMismatch))
	}
	return s, fit(e, op, x.Dtype(), want{t: w, n: s.out * s.Products()})
}

// Convolutions on the CPU, as Gorgonia computes them: one product of a matrix of
// all windows and the weights, so that the numbers are the same.

// productOf sets c to the product of a, rows×inner, and b, inner×cols. Either may
// lie there as its transpose.
func productOf[T layers.Float](a, b, c []T, rows, inner, cols int, turnA, turnB bool) error {
	if rows*cols == 0 || inner == 0 {
		clear(c)
		return nil
	}
	return tensor.StdEng{}.MatMul(matrixOf(a, rows, inner, turnA), matrixOf(b, inner, cols, turnB), matrixOf(c, rows, cols, false))
}

// matrixOf returns a matrix over a slice that has it, or its transpose.
func matrixOf[T layers.Float](data []T, rows, cols int, turned bool) *tensor.Dense {
	if turned {
		return operand.Transposed(matrixOf(data, cols, rows, false))
	}
	return tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(data))
}

func convOnHost[T layers.Float](s convSize, act Activation, failed *error) hostStep {
	return func(in, out []*tensor.Dense) {
		rows := s.n * s.Pixels()
		col, y := make([]T, rows*s.Products()), make([]T, rows*s.out)
		layers.Im2Col(operand.Slice[T](in[0]), col, &s.Window)
		if *failed = productOf(col, operand.Slice[T](in[1]), y, rows, s.Products(), s.out, false, true); *failed != nil {
			return
		}
		if in[2] != nil {
			layers.BiasActivate(y, operand.Slice[T](in[2]), layers.Activation(act))
		} else if act != NoActivation {
			layers.Activate(y, layers.Activation(act))
		}
		layers.ChannelsFirst(y, operand.Slice[T](out[0]), s.out, s.Pixels())
	}
}

func convBackOnHost[T layers.Float](s convSize, act Activation, failed *error) hostStep {
	return func(in, out []*tensor.Dense) {
		rows, x, w := s.n*s.Pixels(), operand.Slice[T](in[0]), operand.Slice[T](in[1])
		dz := make([]T, rows*s.out)
		layers.ChannelsFirst(operand.Slice[T](in[2]), dz, s.Pixels(), s.out) // channels last
		col := make([]T, rows*s.Products())
		if dw := operand.Slice[T](out[1]); dw != nil {
			layers.Im2Col(x, col, &s.Window)
			if *failed = productOf(dz, col, dw, s.out, rows, s.Products(), true, false); *failed != nil {
				return
			}
		}
		if db := operand.Slice[T](out[2]); db != nil {
			layers.BiasActivateBack(dz, dz, db, s.out, layers.None)
		}
		if dx := operand.Slice[T](out[0]); dx != nil {
			if *failed = productOf(dz, w, col, rows, s.out, s.Products(), false, false); *failed != nil {
				return
			}
			layers.Col2Im(col, dx, &s.Window)
			layers.BiasActivateBack(x, dx, nil, 0, layers.Activation(act))
		}
	}
}

func columnsOnHost[T layers.Float](s convSize, back bool) hostStep {
	move := layers.Im2Col[T]
	if back {
		move = layers.Col2Im[T]
	}
	return func(in, out []*tensor.Dense) { move(operand.Slice[T](in[0]), operand.Slice[T](out[0]), &s.Window) }
}
