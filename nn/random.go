package nn

import (
	"fmt"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/philox"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Seed selects random numbers. Each Stream of each Seed is a sequence of its own.
// Sequences are the same on every device but for rounding.
type Seed struct{ Seed, Stream uint64 }

// Uniform fills t with random numbers in [lo, hi).
func Uniform(e *cupool.Engine, t tensor.Tensor, lo, hi float64, s Seed) error {
	return random(e, "Uniform", t, false, lo, hi-lo, s)
}

// Normal fills t with normally distributed random numbers.
func Normal(e *cupool.Engine, t tensor.Tensor, mean, deviation float64, s Seed) error {
	return random(e, "Normal", t, true, mean, deviation, s)
}

func random(e *cupool.Engine, op string, t tensor.Tensor, normal bool, p, q float64, s Seed) error {
	defer operand.KeepAlive(t)
	if operand.IsNil(t) {
		return fail(op, fmt.Errorf("no tensor: %w", cupool.ErrNotSupported))
	}
	if err := fit(e, op, t.Dtype(), want{t: t, n: t.Shape().TotalSize()}); err != nil {
		return err
	}
	if ok, err := randomOnGPU(e.Ops().GPU(), op, t, normal, p, q, s); ok {
		return err
	}
	return e.Ops().InPlace(op, nil, []tensor.Tensor{t}, func(_, out []*tensor.Dense) {
		if isDouble(t) {
			randomOnHost(operand.Slice[float64](out[0]), normal, p, q, s)
		} else {
			randomOnHost(operand.Slice[float32](out[0]), normal, p, q, s)
		}
	})
}

func randomOnHost[T layers.Float](dst []T, normal bool, p, q float64, s Seed) {
	if normal {
		philox.Normal(dst, p, q, s.Stream, s.Seed)
	} else {
		philox.Uniform(dst, p, q, s.Stream, s.Seed)
	}
}

func randomOnGPU(g *gpu.Ops, op string, t tensor.Tensor, normal bool, p, q float64, s Seed) (bool, error) {
	n := t.Shape().TotalSize()
	args := kernels.RandomArgs{Seed: s.Seed, Stream: s.Stream, P: p, Q: q, N: int64(n)}
	if !g.Addresses([]*uint64{&args.Dst}, t) {
		return false, nil
	}
	if normal {
		args.Normal = 1
	}
	per := 16 / int(t.Dtype().Size()) // numbers a thread makes
	return true, g.Each(op, kernels.Random.Of(isDouble(t)), (n+per-1)/per, unsafe.Pointer(&args))
}
