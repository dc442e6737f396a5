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

// CrossEntropy compares logits, one row a sample, with the classes in target.
// target has the index of a class for each row, of type tensor.Int, or a weight
// for each logit. CrossEntropy adds -Σ weight·log SoftMax(logits) of each row to
// loss, a vector, so that losses add up over steps. It sets grad to the gradient
// of the rows' mean loss by the logits. A row whose index is out of range has no
// class.
func CrossEntropy(e *cupool.Engine, logits, target, loss, grad tensor.Tensor) error {
	return crossEntropy(e, "CrossEntropy", logits, target, loss, grad, lossSize{mean: true})
}

// ScaledCrossEntropy is CrossEntropy that sets loss, in place of adding to it,
// and sets grad to scale times the gradient of the sum of the rows' losses.
func ScaledCrossEntropy(e *cupool.Engine, logits, target, loss, grad tensor.Tensor, scale float64) error {
	return crossEntropy(e, "ScaledCrossEntropy", logits, target, loss, grad, lossSize{scale: scale})
}

func crossEntropy(e *cupool.Engine, op string, logits, target, loss, grad tensor.Tensor, s lossSize) (err error) {
	defer operand.KeepAlive(logits, target, loss, grad)
	s.rows, s.cols, err = matrixShape(op, logits)
	if err == nil {
		err = fit(e, op, logits.Dtype(), want{t: logits, n: s.rows * s.cols}, want{t: loss, n: s.rows}, want{t: grad, n: s.rows * s.cols})
	}
	s.weights = err == nil && !operand.IsNil(target) && target.Dtype() == logits.Dtype()
	switch {
	case err != nil:
	case s.weights:
		err = fit(e, op, logits.Dtype(), want{t: target, n: s.rows * s.cols})
	default:
		err = fitType(e, op, tensor.Int, want{t: target, n: s.rows})
	}
	if err != nil {
		return err
	}
	if s.mean {
		s.scale = 1 / float64(s.rows)
	}
	if ok, err := crossEntropyOnGPU(tensorop.Of(e).GPU(), op, s, logits, target, loss, grad); ok {
		return err
	}
	return onHost(e, op, logits, []tensor.Tensor{logits, target}, []tensor.Tensor{loss, grad}, crossEntropyOnHost[float32](s), crossEntropyOnHost[float64](s))
}

// lossSize has the sizes and options of a cross entropy.
type lossSize struct {
	rows, cols int
	weights    bool    // targets are weights of classes
	mean       bool    // the gradient is that of the mean, and losses are added up
	scale      float64 // of the gradient
}

func crossEntropyOnHost[T layers.Float](s lossSize) hostStep {
	return func(in, out []*tensor.Dense) {
		loss := operand.Slice[T](out[0])
		if !s.mean {
			clear(loss)
		}
		classes := operand.Slice[int](in[1])
		target := func(r, c int) T {
			if classes[r] == c {
				return 1
			}
			return 0
		}
		if s.weights {
			ws := operand.Slice[T](in[1])
			target = func(r, c int) T { return ws[r*s.cols+c] }
		}
		layers.CrossEntropy(operand.Slice[T](in[0]), loss, operand.Slice[T](out[1]), s.cols, s.scale, target)
	}
}

func crossEntropyOnGPU(g *gpu.Ops, op string, s lossSize, logits, target, loss, grad tensor.Tensor) (bool, error) {
	args := kernels.CrossEntropyArgs{Scale: s.scale, Rows: int64(s.rows), N: int64(s.cols)}
	if !g.Addresses([]*uint64{&args.X, &args.Target, &args.Loss, &args.Grad}, logits, target, loss, grad) {
		return false, nil
	}
	if s.weights {
		args.Weights = 1
	}
	if s.mean {
		args.Incr = 1
	}
	return true, g.Rows(op, kernels.CrossEntropy.Of(isDouble(logits)), s.rows, unsafe.Pointer(&args))
}
