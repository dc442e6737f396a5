package faults_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

var errInjected = errors.New("injected")

// brokenDriver fails one of its calls that do work on a stream.
type brokenDriver struct {
	cupool.Driver
	left int // calls until then
}

func (d *brokenDriver) fail() error {
	d.left--
	if d.left == 0 {
		return errInjected
	}
	return nil
}

func (d *brokenDriver) SyncStream(s cupool.StreamHandle) error {
	return errors.Join(d.fail(), d.Driver.SyncStream(s))
}

func (d *brokenDriver) Copy(dst, src cupool.Ptr, n int64, s cupool.StreamHandle) error {
	return errors.Join(d.fail(), d.Driver.Copy(dst, src, n, s))
}

func (d *brokenDriver) CopyIn(dst cupool.Ptr, src []byte, s cupool.StreamHandle) error {
	return errors.Join(d.fail(), d.Driver.CopyIn(dst, src, s))
}

func (d *brokenDriver) CopyOut(dst []byte, src cupool.Ptr, s cupool.StreamHandle) error {
	return errors.Join(d.fail(), d.Driver.CopyOut(dst, src, s))
}

func (d *brokenDriver) Memset(dst cupool.Ptr, v byte, n int64, s cupool.StreamHandle) error {
	return errors.Join(d.fail(), d.Driver.Memset(dst, v, n, s))
}

// TestEngineDeviceFailures fails each call of the device in turn: the error
// comes out and no memory is lost.
func TestEngineDeviceFailures(t *testing.T) {
	for name, far := range map[string]bool{"near": false, "far": true} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				host, err := cupool.OpenHost(cupool.HostConfig{})
				require.NoError(t, err)
				broken := &brokenDriver{Driver: host}
				if far {
					broken.Driver = pooltest.Far{Driver: host}
				}
				c, err := cupool.New(cupool.Config{Driver: broken})
				require.NoError(t, err)
				e, err := cupool.NewEngine(c)
				require.NoError(t, err)

				sc := e.Scope()
				broken.left = n
				err = cupool.Try(func() error { return computeAll(e) })
				if err == nil {
					err = e.Sync()
				}
				done := broken.left > 0
				broken.left = 0
				if done {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, errInjected, "call %d", n)
				}
				require.NoError(t, sc.Close())
				require.Zero(t, c.Stats().All.Allocation.Current)
				require.NoError(t, c.Close())
				require.NoError(t, host.Close())
				if done {
					require.Greater(t, n, 20, "there were that many calls")
					return
				}
			}
		})
	}
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
