package main

import (
	"errors"
	"fmt"

	"github.com/cupool/cupool"
	"gorgonia.org/tensor"
)

// The formulas of the network are written as calls of the engine and of tensor.
// tensor has two ways to fail: it returns an error, or, where the pool has no
// memory left, it panics with the engine's error. must makes the first one
// look like the second, and catch, deferred by whoever runs a formula, turns
// both into an ordinary error.

// A failure is what must panics with.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// must is the result of a tensor operation that did not fail.
func must[T any](result T, err error) T {
	check(err)
	return result
}

// check fails for an error.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// catch sets *err to what must, check or the engine panicked with. Any other
// panic is a bug and goes on.
func catch(err *error) {
	p := recover()
	if p == nil {
		return
	}
	var engine *cupool.EngineError
	switch e, _ := p.(error); {
	case errors.As(e, new(failure)), errors.As(e, &engine):
		*err = errors.Join(e, *err)
	default:
		panic(p)
	}
}

// zeros makes a tensor in the pool; New clears its memory.
func zeros(eng *cupool.Engine, dt tensor.Dtype, shape ...int) *tensor.Dense {
	return tensor.New(tensor.WithEngine(eng), tensor.Of(dt), tensor.WithShape(shape...))
}

// upload copies values into a new tensor in the pool.
func upload[T float32 | float64 | int](eng *cupool.Engine, values []T, shape ...int) *tensor.Dense {
	return must(eng.FromHost(tensor.New(tensor.WithBacking(values), tensor.WithShape(shape...))))
}

// uploadAs is upload into a tensor of type dt.
func uploadAs(eng *cupool.Engine, dt tensor.Dtype, values []float64, shape ...int) *tensor.Dense {
	if dt == tensor.Float64 {
		return upload(eng, values, shape...)
	}
	narrow := make([]float32, len(values))
	for i, v := range values {
		narrow[i] = float32(v)
	}
	return upload(eng, narrow, shape...)
}

// number copies a tensor of one element back.
func number(eng *cupool.Engine, t tensor.Tensor) float64 {
	switch v := must(eng.ToHost(t)).Data().(type) {
	case float32:
		return float64(v)
	case float64:
		return v
	default:
		panic(fmt.Sprintf("not one floating point number: %T", v))
	}
}
