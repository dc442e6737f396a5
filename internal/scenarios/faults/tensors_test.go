package faults_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestEngineDeviceFailures fails each call of the device that works on a stream in
// turn: the error comes out and no memory is lost.
func TestEngineDeviceFailures(t *testing.T) {
	for name, far := range map[string]bool{"near": false, "far": true} {
		t.Run(name, func(t *testing.T) {
			failures := 0
			for _, call := range []string{"SyncStream", "Copy", "CopyIn", "CopyOut", "Memset"} {
				for n := 1; failsTensors(t, far, call, n); n++ {
					failures++
				}
			}
			require.Greater(t, failures, 20)
		})
	}
}

// failsTensors computes while the nth call of a kind fails, and reports whether there
// was one.
func failsTensors(t *testing.T, far bool, call string, n int) bool {
	injected := errors.New("injected")
	host := pooltest.OpenHost(t)
	if far {
		host = pooltest.Far{Driver: host}
	}
	d := conformance.NewFailing(host)
	c := pooltest.Open(t, cupool.Config{Driver: d})
	e, err := cupool.NewEngine(c)
	require.NoError(t, err)
	sc := e.Scope()
	d.FailNth(call, n, injected)
	err = cupool.Try(func() error { return computeAll(e) })
	if err == nil {
		err = e.Sync()
	}
	failed := d.Failed(call) > 0
	if failed {
		require.ErrorIs(t, err, injected, "%s, call %d", call, n)
	} else {
		require.NoError(t, err)
	}
	d.Heal()
	require.NoError(t, sc.Close())
	require.Zero(t, c.Stats().All.Allocation.Current)
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
	return failed
}

// computeAll uses an engine in every way and returns the first error.
func computeAll(e *cupool.Engine) (err error) {
	x, err := e.FromHost(tensor.New(tensor.WithShape(3, 3), tensor.WithBacking([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9})))
	if err != nil {
		return err
	}
	y := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(3, 3), tensor.WithEngine(e))
	for _, f := range []func() error{
		func() error { return e.Memset(y, float32(2)) },
		func() error { return e.Copy(y, x) },
		func() error { _, err := tensor.Add(x, y); return err },
		func() error { _, err := tensor.Add(x, y, tensor.UseUnsafe()); return err },
		func() error { _, err := tensor.Gt(x, float32(1)); return err },
		func() error { _, err := tensor.Exp(x, tensor.WithReuse(y)); return err },
		func() error { _, err := tensor.Sum(x); return err },
		func() error { _, err := tensor.MatMul(x, y); return err },
		func() error { _, err := tensor.SoftMax(x, 1, tensor.UseUnsafe()); return err },
		func() error { _, err := tensor.Transpose(x); return err },
		func() error { _, _, _, err := x.SVD(true, false); return err },
		func() error { _, err := x.Trace(); return err },
		func() error { x.Clone(); return nil },
		func() error { _, err := e.ToHost(y); return err },
		func() error { return e.Zero(y) },
		func() error { e.Memclr(y); return e.Sync() },
	} {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}
