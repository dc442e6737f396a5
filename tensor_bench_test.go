package cupool_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// noZeroing is a Driver whose memory the CPU cannot touch, so that the engine
// has the device zero it, which this one leaves undone.
type noZeroing struct{ cupool.Driver }

func (noZeroing) HostAccessible() bool { return false }

func (noZeroing) Memset(cupool.Ptr, byte, int64, cupool.StreamHandle) error { return nil }

// Alloc, which zeroes, and Free. With zeroing=off everything happens as on
// device memory but for the driver's memset itself, whose time would hide the
// engine's: to measure the zeroing alone and take it off does not work, as at
// 1 MiB it varies by more than all the rest takes.
func BenchmarkEngineAllocFree(b *testing.B) {
	for _, zeroing := range []string{"off", "on"} {
		for _, size := range []int64{64, 4 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("zeroing=%s/bytes=%d", zeroing, size), func(b *testing.B) {
				d := benchDevice(b)
				if zeroing == "off" {
					d = noZeroing{d}
				}
				e, err := cupool.NewEngine(poolOn(b, d))
				require.NoError(b, err)
				engineAllocFree(b, e, size)
			})
		}
	}
}

func engineAllocFree(b *testing.B, e *cupool.Engine, size int64) {
	b.ReportAllocs()
	for b.Loop() {
		m, err := e.Alloc(size)
		if err == nil {
			err = e.Free(m, size)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// engineOps are operations that BenchmarkEngine compares.
var engineOps = []struct {
	name string
	f    func(x, y *tensor.Dense) (tensor.Tensor, error)
}{
	{"Add", func(x, y *tensor.Dense) (tensor.Tensor, error) { return tensor.Add(x, y) }},
	{"Add_unsafe", func(x, y *tensor.Dense) (tensor.Tensor, error) { return tensor.Add(x, y, tensor.UseUnsafe()) }},
	{"MulScalar_unsafe", func(x, y *tensor.Dense) (tensor.Tensor, error) {
		return tensor.Mul(x, float32(0.5), tensor.UseUnsafe())
	}},
	{"Gt", func(x, y *tensor.Dense) (tensor.Tensor, error) { return tensor.Gt(x, float32(0), tensor.AsSameType()) }},
	{"Sum0", func(x, y *tensor.Dense) (tensor.Tensor, error) { return tensor.Sum(x, 0) }},
	{"Repeat", func(x, y *tensor.Dense) (tensor.Tensor, error) { return tensor.Repeat(x, 0, 2) }},
	{"SoftMax", func(x, y *tensor.Dense) (tensor.Tensor, error) { return tensor.SoftMax(x, 1) }},
	{"MatMul", func(x, y *tensor.Dense) (tensor.Tensor, error) { return tensor.MatMul(x, y) }},
}

// BenchmarkEngine compares operations with StdEng's.
func BenchmarkEngine(b *testing.B) {
	e, err := cupool.NewEngine(benchPool(b))
	require.NoError(b, err)
	for _, op := range engineOps {
		for _, n := range []int{8, 128} {
			b.Run(fmt.Sprintf("%s/n=%d/engine=StdEng", op.name, n), func(b *testing.B) {
				engineOp(b, tensor.StdEng{}, n, op.f, func(...tensor.Tensor) error { return nil })
			})
			b.Run(fmt.Sprintf("%s/n=%d/engine=cupool", op.name, n), func(b *testing.B) {
				engineOp(b, e, n, op.f, e.FreeTensor)
			})
		}
	}
}

// engineOp measures an operation on n × n tensors of eng, and the freeing of
// its result unless that is one of them.
func engineOp(b *testing.B, eng tensor.Engine, n int, op func(x, y *tensor.Dense) (tensor.Tensor, error), free func(...tensor.Tensor) error) {
	x := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(n, n), tensor.WithEngine(eng))
	y := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(n, n), tensor.WithEngine(eng))
	b.ReportAllocs()
	for b.Loop() {
		r, err := op(x, y)
		if err == nil && r != tensor.Tensor(x) {
			err = free(r)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	require.NoError(b, free(x, y))
}
