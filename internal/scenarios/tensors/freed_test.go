package tensors_test

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// Tests of tensors whose memory was freed, in whatever way, and may be another
// tensor's since. In builds for a GPU they run there too.

// isOurs reports whether an error is one that a program can expect of a freed
// tensor.
func isOurs(err error) bool {
	return errors.Is(err, cupool.ErrUseAfterFree) || errors.Is(err, cupool.ErrDoubleFree) // also ErrStaleBlock
}

// failure returns the error that a call returns, or panics with. A fault is one of
// Go's then.
func failure(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			if e, ok := p.(error); ok {
				err = e
			} else {
				err = fmt.Errorf("%v", p)
			}
		}
	}()
	return f()
}

// freedBy are the ways in which a tensor's memory is given back.
var freedBy = map[string]func(e *bench, make func() *tensor.Dense) *tensor.Dense{
	"FreeTensor": func(e *bench, make func() *tensor.Dense) *tensor.Dense {
		d := make()
		e.FreeAll(d)
		return d
	},
	"Scope.Close": func(e *bench, make func() *tensor.Dense) *tensor.Dense {
		s := e.Scope()
		d := make()
		require.NoError(e.T, s.Close())
		return d
	},
	"Close of a scope around": func(e *bench, make func() *tensor.Dense) *tensor.Dense {
		around, s := e.Scope(), e.Scope()
		d := make()
		require.NoError(e.T, s.Keep(d))
		require.NoError(e.T, s.Close())
		require.NoError(e.T, around.Close())
		return d
	},
}

func makeTensor(e *bench, values ...float64) func() *tensor.Dense {
	return func() *tensor.Dense {
		return e.From(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking(values)))
	}
}

// TestFreedTensors: a tensor whose memory went back, and is another's now, reads
// and frees nothing of that, whether FreeTensor gave it back or a scope.
func TestFreedTensors(t *testing.T) {
	for name, freed := range freedBy {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, e *bench) {
				old := freed(e, makeTensor(e, 1, 2, 3, 4))
				now := makeTensor(e, 5, 6, 7, 8)()
				require.Zero(t, old.MemSize(), "bytes of the freed tensor")
				require.Panics(t, func() { old.Data() })
				require.ErrorIs(t, e.FreeTensor(old), cupool.ErrDoubleFree)
				_, err := e.ToHost(old)
				require.ErrorIs(t, err, cupool.ErrUseAfterFree)
				require.ErrorIs(t, e.Copy(old, now), cupool.ErrUseAfterFree)
				require.ErrorIs(t, e.Copy(now, old), cupool.ErrUseAfterFree)
				_, err = tensor.Add(now, old)
				require.ErrorIs(t, err, cupool.ErrUseAfterFree)
				for name, use := range wholeUses {
					s := e.Scope() // MatMul loses the tensor for its result
					require.ErrorIs(t, use(e, now, old), cupool.ErrUseAfterFree, name)
					require.NoError(t, s.Close())
				}
				require.Equal(t, []float64{5, 6, 7, 8}, e.Host(now).Data())
				require.NoError(t, e.FreeTensor(now))
				require.Zero(t, e.Live())
			})
		})
	}
}

// TestFreedTensorMethods: what tensor does with a freed tensor by itself is an
// error, or a panic with one, where it asks the engine.
func TestFreedTensorMethods(t *testing.T) {
	for name, call := range map[string]func(d *tensor.Dense) error{
		"Clone":       func(d *tensor.Dense) error { _, err := tensor.Exp(d.Clone().(*tensor.Dense)); return err }, // of a freed tensor
		"Slice":       func(d *tensor.Dense) error { _, err := d.Slice(tensor.S(0)); return err },
		"Zero":        func(d *tensor.Dense) error { d.Zero(); return nil },
		"Memset":      func(d *tensor.Dense) error { return d.Memset(1.0) },
		"Transpose":   func(d *tensor.Dense) error { return errors.Join(d.T(), d.Transpose()) },
		"T":           func(d *tensor.Dense) error { return d.T() },
		"Sum":         func(d *tensor.Dense) error { _, err := d.Sum(); return err },
		"Materialize": func(d *tensor.Dense) error { d.Materialize(); return nil },
	} {
		for how, freed := range freedBy {
			t.Run(name+" after "+how, func(t *testing.T) {
				both(t, func(t *testing.T, e *bench) {
					old := freed(e, makeTensor(e, 1, 2, 3, 4))
					now := makeTensor(e, 5, 6, 7, 8)()
					err := failure(func() error { return call(old) })
					err = errors.Join(err, e.Sync()) // has what tensor dropped
					switch name {
					case "T", "Materialize", "Zero", "Memset": // which need not ask the engine
					case "Slice":
						require.Error(t, err) // tensor's own, as it does not ask the engine
					default:
						require.True(t, isOurs(err), "%v", err)
					}
					require.Equal(t, []float64{5, 6, 7, 8}, e.Host(now).Data())
					e.FreeAll(now)
					require.Zero(t, e.Live())
				})
			})
		}
	}
}

// views are made of a tensor of 2 by 2.
var views = map[string]func(d *tensor.Dense) *tensor.Dense{
	"slice":         func(d *tensor.Dense) *tensor.Dense { return view(d, tensor.S(0, 1)) },
	"column":        func(d *tensor.Dense) *tensor.Dense { return view(d, nil, tensor.S(1)) },
	"shallow clone": func(d *tensor.Dense) *tensor.Dense { return d.ShallowClone() },
	"slice of one":  func(d *tensor.Dense) *tensor.Dense { return view(view(d, tensor.S(1, 2)), tensor.S(0, 1)) },
}

// viewUses are operations of the engine.
var viewUses = map[string]func(e *bench, v *tensor.Dense) error{
	"Add":      func(_ *bench, v *tensor.Dense) error { _, err := tensor.Add(v, v); return err },
	"Add to":   func(_ *bench, v *tensor.Dense) error { _, err := tensor.Add(v, 1.0, tensor.UseUnsafe()); return err },
	"Exp":      func(_ *bench, v *tensor.Dense) error { _, err := tensor.Exp(v); return err },
	"Sum":      func(_ *bench, v *tensor.Dense) error { _, err := tensor.Sum(v); return err },
	"ToHost":   func(e *bench, v *tensor.Dense) error { _, err := e.ToHost(v); return err },
	"FromHost": func(e *bench, v *tensor.Dense) error { _, err := e.FromHost(v); return err },
	"Copy to":  func(e *bench, v *tensor.Dense) error { return e.Copy(v, like(v)) },
	"Copy of":  func(e *bench, v *tensor.Dense) error { return e.Copy(like(v), v) },
	"Memset":   func(e *bench, v *tensor.Dense) error { return e.Memset(v, 1.0) },
	"Free":     func(e *bench, v *tensor.Dense) error { return e.FreeTensor(v) },
}

// wholeUses are operations on tensors of 2 by 2. x is one that lives.
var wholeUses = map[string]func(e *bench, x, d *tensor.Dense) error{
	"Add to": func(_ *bench, x, d *tensor.Dense) error { return testkit.Second(tensor.Add(x, d)) },
	"reuse": func(_ *bench, x, d *tensor.Dense) error {
		return testkit.Second(tensor.Add(x, x, tensor.WithReuse(d)))
	},
	"incr":       func(_ *bench, x, d *tensor.Dense) error { return testkit.Second(tensor.Exp(x, tensor.WithIncr(d))) },
	"AddScalar":  func(_ *bench, _, d *tensor.Dense) error { return testkit.Second(tensor.Add(d, 1.0)) },
	"MatMul":     func(_ *bench, x, d *tensor.Dense) error { return testkit.Second(tensor.MatMul(x, d)) },
	"SoftMax":    func(_ *bench, _, d *tensor.Dense) error { return testkit.Second(tensor.SoftMax(d, 1)) },
	"Memcpy":     func(e *bench, x, d *tensor.Dense) error { return e.Memcpy(x, d) },
	"Accessible": func(e *bench, _, d *tensor.Dense) error { return testkit.Second(e.Accessible(d)) },
	"Zero":       func(e *bench, _, d *tensor.Dense) error { return e.Zero(d) },
	"Norm":       func(e *bench, _, d *tensor.Dense) error { return testkit.Second(e.Norm(d, tensor.UnorderedNorm())) },
	"Trace":      func(_ *bench, _, d *tensor.Dense) error { return testkit.Second(d.Trace()) },
}

// like returns a tensor of the host of another's shape.
func like(v *tensor.Dense) *tensor.Dense {
	return tensor.New(tensor.Of(v.Dtype()), tensor.WithShape(v.Shape().Clone()...))
}

// TestViewsOfFreedTensors: a view of memory that was freed is an error in every
// operation of the engine.
func TestViewsOfFreedTensors(t *testing.T) {
	viewsOfFreed(t, false)
}

// TestViewsOfReusedMemory: where the engine knows of which block a tensor is a
// view, it is an error also when the memory is another tensor's since.
func TestViewsOfReusedMemory(t *testing.T) {
	viewsOfFreed(t, true, cupool.WithLifetimes())
}

func viewsOfFreed(t *testing.T, reused bool, opts ...cupool.EngineOption) {
	for how, freed := range freedBy {
		for what, make := range views {
			t.Run(fmt.Sprintf("a %s after %s", what, how), func(t *testing.T) {
				both(t, func(t *testing.T, e *bench) {
					for name, use := range viewUses {
						viewOfFreed(t, e, freed, make, reused, name, use)
					}
				}, opts...)
			})
		}
	}
}

func viewOfFreed(t *testing.T, e *bench, freed func(*bench, func() *tensor.Dense) *tensor.Dense, make func(*tensor.Dense) *tensor.Dense, reused bool, name string, use func(*bench, *tensor.Dense) error) {
	var v, now *tensor.Dense
	old := freed(e, func() *tensor.Dense {
		d := makeTensor(e, 1, 2, 3, 4)()
		v = make(d)
		return d
	})
	if reused {
		now = makeTensor(e, 5, 6, 7, 8)()
	}
	err := failure(func() error { return use(e, v) })
	if name == "Free" {
		require.Error(t, err, name) // it may be called an interior pointer
	} else {
		require.True(t, isOurs(err), "%s: %v", name, err)
	}
	if reused {
		require.Equal(t, []float64{5, 6, 7, 8}, e.Host(now).Data(), name)
		e.FreeAll(now)
	}
	require.Zero(t, e.Live(), name)
	runtime.KeepAlive(old)
}
