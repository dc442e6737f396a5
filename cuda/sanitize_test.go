//go:build gpu

package cuda_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// sanitizedGPU runs a test on an allocator with sanitizers over a GPU, with both
// backings. The kernels are those of the same context.
func sanitizedGPU(t *testing.T, change func(*cupool.Config), f func(t *testing.T, c *cupool.Pool, k *gputest.Kernels)) {
	for _, b := range []cupool.Backing{cupool.BackingVMM, cupool.BackingSegments} {
		t.Run(b.String(), func(t *testing.T) {
			d, err := cuda.Open(0)
			require.NoError(t, err)
			k, err := gputest.Load(d.Context())
			require.NoError(t, err)
			cfg := cupool.Config{Driver: d, Backing: b}
			change(&cfg)
			c, err := cupool.New(cfg)
			require.NoError(t, err)
			f(t, c, k)
			assert.NoError(t, c.Close())
			assert.NoError(t, k.Close())
			assert.NoError(t, d.Close())
		})
	}
}

func take(t *testing.T, c *cupool.Pool, size int64, s *cupool.Stream) cupool.Block {
	t.Helper()
	b, err := c.Alloc(size, s)
	require.NoError(t, err)
	return b
}

// damage returns the one CorruptionError of an error.
func damage(t *testing.T, err error) *cupool.CorruptionError {
	t.Helper()
	require.ErrorIs(t, err, cupool.ErrCorrupted)
	var e *cupool.CorruptionError
	require.ErrorAs(t, err, &e)
	return e
}

// TestGPUCanaries: a kernel that writes behind its block is found by Free, which
// waits for it, and names the block.
func TestGPUCanaries(t *testing.T) {
	sanitizedGPU(t, func(cfg *cupool.Config) { cfg.Sanitize = cupool.Sanitizers{Canaries: 256, Wait: true} },
		func(t *testing.T, c *cupool.Pool, k *gputest.Kernels) {
			s, err := c.NewStream()
			require.NoError(t, err)
			for _, size := range []int64{1000, 4096, 5 << 20} {
				b := take(t, c, size, s)
				require.NoError(t, k.Fill(uintptr(s.Handle()), uintptr(b.Ptr()), size, 1))
				require.NoError(t, c.Free(b), "a kernel that keeps to its block")
				b = take(t, c, size, s)
				require.NoError(t, k.Fill(uintptr(s.Handle()), uintptr(b.Ptr()), size+12, 1))
				e := damage(t, c.Free(b))
				assert.Equal(t, b.Ptr(), e.Ptr)
				assert.GreaterOrEqual(t, e.Offset, size)
				assert.Less(t, e.Offset, size+12)
				assert.LessOrEqual(t, e.Bytes, int64(12))
				assert.Contains(t, e.AllocatedAt, "cuda_test.take")
				t.Log(e)
				require.ErrorIs(t, c.Check(), cupool.ErrCorrupted)
			}
		})
}

// TestGPUPoison: freed memory has the pattern, and a kernel that writes to it is
// found as long as the block is in quarantine.
func TestGPUPoison(t *testing.T) {
	sanitizedGPU(t, func(cfg *cupool.Config) { cfg.Sanitize = cupool.Sanitizers{Poison: true, Quarantine: 64 << 20} },
		func(t *testing.T, c *cupool.Pool, k *gputest.Kernels) {
			s, err := c.NewStream()
			require.NoError(t, err)
			const size = 1 << 20
			got := make([]byte, size)
			b := take(t, c, size, s)
			require.NoError(t, s.CopyOut(got, b.Ptr()))
			require.Equal(t, size, bytes.Count(got, []byte{0xCD}))
			require.NoError(t, c.Free(b))
			require.NoError(t, s.CopyOut(got, b.Ptr()))
			require.Equal(t, size, bytes.Count(got, []byte{0xDB}))
			require.NoError(t, k.Fill(uintptr(s.Handle()), uintptr(b.Ptr())+4096, 64, 7))
			require.NoError(t, s.Sync())
			e := damage(t, c.EmptyCache())
			assert.ErrorIs(t, e, cupool.ErrUseAfterFree)
			assert.Equal(t, b.Ptr(), e.Ptr)
			assert.GreaterOrEqual(t, e.Offset, int64(4096))
			assert.Less(t, e.Offset, int64(4096+64))
			assert.Contains(t, e.FreedAt, "TestGPUPoison")
			t.Log(e)
		})
}

// TestGPUZero: memory of a pool that is filled with zeros shows nothing, read as
// it lies after the free, and when it goes to another stream or pool.
func TestGPUZero(t *testing.T) {
	sanitizedGPU(t, func(*cupool.Config) {}, func(t *testing.T, c *cupool.Pool, k *gputest.Kernels) {
		s, err := c.NewStream()
		require.NoError(t, err)
		const size = 3 << 20
		got := make([]byte, size)
		secret := func(c *cupool.Pool) cupool.Block {
			b := take(t, c, size, s)
			require.NoError(t, k.Fill(uintptr(s.Handle()), uintptr(b.Ptr()), size, 99))
			return b
		}
		free, err := c.NewPool(cupool.PoolConfig{Name: "zero on free", ZeroOnFree: true})
		require.NoError(t, err)
		b := secret(free)
		require.NoError(t, free.Free(b))
		require.NoError(t, s.CopyOut(got, b.Ptr())) // in order behind the zeros
		require.Equal(t, size, bytes.Count(got, []byte{0}))

		alloc, err := c.NewPool(cupool.PoolConfig{Name: "zero on alloc", ZeroOnAlloc: true})
		require.NoError(t, err)
		b = secret(alloc)
		require.NoError(t, alloc.Free(b))
		require.NoError(t, s.CopyOut(got, b.Ptr()))
		require.NotEqual(t, size, bytes.Count(got, []byte{0}), "it shows until it is reused")
		again := take(t, alloc, size, s)
		require.Equal(t, b.Ptr(), again.Ptr())
		require.NoError(t, s.CopyOut(got, again.Ptr()))
		require.Equal(t, size, bytes.Count(got, []byte{0}))
		require.NoError(t, alloc.Free(again))
		require.NoError(t, errors.Join(free.Close(), alloc.Close()))
	})
}

// TestGPUGuard: a kernel that touches what lies in front of a guarded block,
// behind it, or a block that was freed, faults. Each ends the context, so it runs
// in a process of its own.
func TestGPUGuard(t *testing.T) {
	const env = "CUPOOL_TEST_GUARD"
	which := os.Getenv(env)
	if which == "" {
		for _, which := range []string{"inside", "behind", "in front", "after free"} {
			t.Run(which, func(t *testing.T) {
				cmd := exec.Command(os.Args[0], "-test.run=^TestGPUGuard$", "-test.v")
				cmd.Env = append(os.Environ(), env+"="+which)
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, string(out))
				require.Contains(t, string(out), "--- PASS: TestGPUGuard")
				t.Logf("%s", out)
			})
		}
		return
	}
	d, err := cuda.Open(0)
	require.NoError(t, err)
	k, err := gputest.Load(d.Context())
	require.NoError(t, err)
	c, err := cupool.New(cupool.Config{Driver: d, Sanitize: cupool.Sanitizers{Guard: true, Wait: true}})
	require.NoError(t, err)
	size := d.(cupool.VirtualMemory).VMMGranularity()
	b := take(t, c, size, nil)
	p := uintptr(b.Ptr())
	fill := func(at uintptr, n int64) error { return errors.Join(k.Fill(0, at, n, 1), c.DefaultStream().Sync()) }
	require.NoError(t, fill(p, size))
	switch which {
	case "inside":
		require.NoError(t, c.Free(b))
		require.NoError(t, c.Close())
		return
	case "behind":
		err = fill(p, size+4)
	case "in front":
		err = fill(p-4, 4)
	case "after free":
		require.NoError(t, c.Free(b))
		err = fill(p, 4)
	}
	require.ErrorIs(t, err, cupool.ErrDeviceLost)
	require.ErrorContains(t, err, "CUDA_ERROR_ILLEGAL_ADDRESS")
	t.Log(err)
}
