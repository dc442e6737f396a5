package tensorop_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"
)

// TestDivide divides NaN, infinities and zeros of both signs by each other, wherever the
// result goes: as Go does, on all devices.
func TestDivide(t *testing.T) {
	negated := math.Copysign(0, -1)
	values := append(slices.Clone(special), 0, negated, 1, -1)
	var xs, ys []float64
	for _, x := range values {
		for _, y := range values {
			xs, ys = append(xs, x), append(ys, y)
		}
	}
	n := len(values)
	layouts := map[string]func(d *tensor.Dense) *tensor.Dense{
		"":            func(d *tensor.Dense) *tensor.Dense { return d },
		" transposed": func(d *tensor.Dense) *tensor.Dense { return transposed(d) },
		" rows":       func(d *tensor.Dense) *tensor.Dense { return view(d, tensor.S(1, n-1)) },
		" columns":    func(d *tensor.Dense) *tensor.Dense { return view(d, nil, tensor.S(1, n-1)) },
		" one":        func(d *tensor.Dense) *tensor.Dense { return view(d, tensor.S(2, 3), tensor.S(3, 4)) },
	}
	both(t, func(t *testing.T, e *bench) {
		from := func(values []float64) *tensor.Dense {
			return e.From(tensor.New(tensor.WithShape(n, n), tensor.WithBacking(slices.Clone(values))))
		}
		check := func(name string, got tensor.Tensor, x, y []float64, incr bool) {
			t.Helper()
			for i, g := range e.As64(got) {
				want := x[i%len(x)] / y[i%len(y)]
				if incr {
					want += 2
				}
				require.True(t, math.IsNaN(want) == math.IsNaN(g) && (math.IsNaN(want) || want == g && math.Signbit(want) == math.Signbit(g)), "%s: %v / %v = %v, want %v", name, x[i%len(x)], y[i%len(y)], g, want)
			}
		}
		for layout, make := range layouts {
			for _, how := range []string{"safe", "unsafe", "reuse", "incr"} {
				for _, scalar := range []string{"", " by a scalar", " of a scalar"} {
					x, y := from(xs), from(ys)
					lx, ly := make(x), make(y)
					hx, hy := e.As64(lx), e.As64(ly)
					var a, b any = lx, ly
					switch scalar {
					case " by a scalar":
						b, hy = negated, []float64{negated}
					case " of a scalar":
						a, b, hx, hy = negated, lx, []float64{negated}, hx
					}
					twos := slices.Repeat([]float64{2}, lx.Shape().TotalSize())
					dst := e.From(tensor.New(tensor.WithShape(lx.Shape().Clone()...), tensor.WithBacking(twos)))
					opts := map[string][]tensor.FuncOpt{"unsafe": {tensor.UseUnsafe()}, "reuse": {tensor.WithReuse(dst)}, "incr": {tensor.WithIncr(dst)}}[how]
					got, err := tensor.Div(a, b, opts...)
					require.NoError(t, err)
					check(fmt.Sprint(how, layout, scalar), got, hx, hy, how == "incr")
					if how == "safe" {
						e.FreeAll(got)
					}
					e.FreeAll(x, y, dst)
				}
			}
		}
	})
}

// TestDivideIntegersByZero fails wherever the result was to go, and changes nothing there. StdEng has 0 in
// some places, and no error.
func TestDivideIntegersByZero(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range []tensor.Dtype{tensor.Int, tensor.Uint8, tensor.Int64} {
			all := e.Scope()
			x := e.From(hostTensor(dt, []float64{6, 4, 2, 0, 0, 0}, []int{6}))
			a, b := view(x, tensor.S(0, 3)), view(x, tensor.S(1, 4))
			dst := e.From(hostTensor(dt, []float64{1, 1, 1}, []int{3}))
			zero := value(dt, 0)
			for how, opts := range map[string][]tensor.FuncOpt{
				"new": nil, "unsafe": {tensor.UseUnsafe()}, "reuse": {tensor.WithReuse(dst)}, "reuse a": {tensor.WithReuse(a)}, "reuse b": {tensor.WithReuse(b)}, "incr": {tensor.WithIncr(dst)},
			} {
				for name, f := range map[string]func() (tensor.Tensor, error){
					"Div":           func() (tensor.Tensor, error) { return e.Div(a, b, opts...) },
					"by a scalar":   func() (tensor.Tensor, error) { return e.DivScalar(a, zero, true, opts...) },
					"of a scalar":   func() (tensor.Tensor, error) { return e.DivScalar(b, value(dt, 3), false, opts...) },
					"Mod":           func() (tensor.Tensor, error) { return e.Mod(a, b, opts...) },
					"by a number 0": func() (tensor.Tensor, error) { return tensor.Div(a, zero, opts...) },
				} {
					_, err := f()
					require.Error(t, err, "%s of %v, %s", name, dt, how)
					require.Equal(t, elements(hostTensor(dt, []float64{6, 4, 2, 0, 0, 0}, []int{6})), elements(e.Host(x)), "%s of %v, %s", name, dt, how)
					require.Equal(t, elements(hostTensor(dt, []float64{1, 1, 1}, []int{3})), elements(e.Host(dst)), "%s of %v, %s", name, dt, how)
				}
			}
			require.NoError(t, all.Close())
		}
	})
}
