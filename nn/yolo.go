package nn

import (
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// YOLO is the last layer of YOLOv3 (Redmon and Farhadi, 2018), which turns what a
// network says about the cells of an image into boxes.
type YOLO struct {
	Anchors [][2]float64 // width and height of a cell's boxes, in pixels; at most 16
	Classes int
	Stride  float64 // width and height of a cell, in pixels
}

// Boxes sets y, of batch × (rows·columns·anchors) × (5 + classes), to the boxes of x,
// of batch × (anchors·(5 + classes)) × rows × columns. A box is its center's x and y,
// its width and height, all in pixels, the probability that there is one, and those of
// the classes. y does not overlap x.
func (o YOLO) Boxes(e *cupool.Engine, x, y tensor.Tensor) error {
	defer operand.KeepAlive(x, y)
	const op = "YOLO.Boxes"
	if operand.IsNil(x) || x.Dims() != 4 {
		return unsupported(op, "an input of four dimensions is needed")
	}
	n := x.Shape().TotalSize()
	if err := fit(e, op, x.Dtype(), want{t: x, n: n}, want{t: y, n: n}); err != nil {
		return err
	}
	if len(o.Anchors) > kernels.MaxBoxes || o.Classes < 0 || x.Shape()[1] != len(o.Anchors)*(5+o.Classes) {
		return unsupported(op, "%d anchors and %d classes for %d channels", len(o.Anchors), o.Classes, x.Shape()[1])
	}
	if err := fitApart(op, []tensor.Tensor{y}, x); err != nil || n == 0 {
		return err
	}
	if ok, err := boxesOnGPU(tensorop.Of(e).GPU(), op, o, x, y); ok {
		return err
	}
	rows, cols := x.Shape()[2], x.Shape()[3]
	return onHost(e, op, x, []tensor.Tensor{x}, []tensor.Tensor{y}, boxesOnHost[float32](o, rows, cols), boxesOnHost[float64](o, rows, cols))
}

func boxesOnHost[T layers.Float](o YOLO, rows, cols int) hostStep {
	return func(in, out []*tensor.Dense) {
		layers.Boxes(operand.Slice[T](out[0]), operand.Slice[T](in[0]), o.Anchors, 5+o.Classes, rows, cols, o.Stride)
	}
}

func boxesOnGPU(g *gpu.Ops, op string, o YOLO, x, y tensor.Tensor) (bool, error) {
	n := x.Shape().TotalSize()
	args := kernels.YOLOArgs{Stride: o.Stride, Boxes: int64(len(o.Anchors)), Attrs: int64(5 + o.Classes),
		Rows: int64(x.Shape()[2]), Cols: int64(x.Shape()[3]), N: int64(n)}
	for i, a := range o.Anchors {
		args.Sizes[2*i], args.Sizes[2*i+1] = a[0], a[1]
	}
	if !g.Addresses([]*uint64{&args.A, &args.Dst}, x, y) {
		return false, nil
	}
	return true, g.Each(op, kernels.YOLO.Of(isDouble(x)), n, unsafe.Pointer(&args))
}
