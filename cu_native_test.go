//go:build gpu

package cupool_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
)

func openFirstGPU(t *testing.T) cupool.Driver {
	d, err := cupool.OpenCUDA(0)
	require.NoError(t, err)
	return d
}

// TestCUDANative runs the battery for any allocator on CUDA's own pools.
func TestCUDANative(t *testing.T) {
	h := newHolder(t)
	for name, cfg := range natives {
		t.Run(name, func(t *testing.T) {
			conformance.RunAllocator(t, func(t *testing.T) cupool.Allocator {
				n, _ := newNative(t, openFirstGPU(t), cfg)
				return n
			}, conformance.Options{Busy: h.busy})
		})
	}
}

func TestCUDANativeAttributes(t *testing.T) {
	n, _ := newNative(t, openFirstGPU(t), cupool.NativeConfig{Pool: &cupool.NativePoolConfig{}})
	testNativeAttributes(t, n)
}

// TestCUDANativeLocation makes pools where memory of the host is, which drivers
// before CUDA 12.6 refuse.
func TestCUDANativeLocation(t *testing.T) {
	for name, at := range map[string]cupool.Location{"device": {Kind: cupool.OnDevice}, "NUMA": {Kind: cupool.OnNUMA}} {
		t.Run(name, func(t *testing.T) {
			d := openFirstGPU(t)
			c, err := cupool.New(cupool.Config{Driver: d})
			require.NoError(t, err)
			n, err := cupool.NewNative(c, cupool.NativeConfig{Pool: &cupool.NativePoolConfig{Location: at}})
			if err != nil && at.Kind != cupool.OnDevice {
				t.Skip(err)
			}
			require.NoError(t, err)
			b, err := n.Alloc(1<<20, nil)
			require.NoError(t, err)
			require.NoError(t, n.DefaultStream().Memset(b.Ptr(), 9, b.Size()))
			requireBytes(t, n.DefaultStream(), b, 9)
			require.NoError(t, n.Free(b))
			require.NoError(t, n.Close())
			require.NoError(t, c.Close())
			require.NoError(t, d.Close())
		})
	}
}

// TestCUDANativeShare shares a pool and a block with another process.
func TestCUDANativeShare(t *testing.T) { shareNative(t, openFirstGPU) }

// TestCUDAPool runs the battery on a private pool, with both backings.
func TestCUDAPool(t *testing.T) {
	h := newHolder(t)
	opt := conformance.Options{Busy: h.busy, Wrap: func(c *cupool.Caching) (*cupool.Caching, error) {
		return c.NewPool(cupool.PoolConfig{})
	}}
	for _, c := range cudaConfigs[:2] {
		t.Run(c.name, func(t *testing.T) { conformance.Run(t, openFirstGPU, c.cfg, opt) })
	}
}
