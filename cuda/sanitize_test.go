package cuda_test

import (
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

func take(t *testing.T, c *cupool.Pool, size int64, s *cupool.Stream) cupool.Block {
	t.Helper()
	b, err := c.Alloc(size, s)
	require.NoError(t, err)
	return b
}

// TestGPUCanaries: a kernel that writes behind its block is found by Free, which
// waits for it, and names the block.
func TestGPUCanaries(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingVMM, cupool.BackingSegments} {
		t.Run(backing.String(), func(t *testing.T) {
			gputest.Need(t)
			d, err := cuda.Open(0)
			require.NoError(t, err)
			k, err := gputest.Load(d.Context()) // of the same context
			require.NoError(t, err)
			c, err := cupool.New(cupool.Config{Driver: d, Backing: backing, Sanitize: cupool.Sanitizers{Canaries: 256, Wait: true}})
			require.NoError(t, err)
			s, err := c.NewStream()
			require.NoError(t, err)
			for _, size := range []int64{1000, 4096, 5 << 20} {
				b := take(t, c, size, s)
				require.NoError(t, k.Fill(uintptr(s.Handle()), uintptr(b.Ptr()), size, 1))
				require.NoError(t, c.Free(b), "a kernel that keeps to its block")
				b = take(t, c, size, s)
				require.NoError(t, k.Fill(uintptr(s.Handle()), uintptr(b.Ptr()), size+12, 1))
				err := c.Free(b)
				require.ErrorIs(t, err, cupool.ErrCorrupted)
				var e *cupool.CorruptionError
				require.ErrorAs(t, err, &e)
				assert.Equal(t, b.Ptr(), e.Ptr)
				assert.GreaterOrEqual(t, e.Offset, size)
				assert.Less(t, e.Offset, size+12)
				assert.LessOrEqual(t, e.Bytes, int64(12))
				assert.Contains(t, e.AllocatedAt, "cuda_test.take")
				t.Log(e)
				require.ErrorIs(t, c.Check(), cupool.ErrCorrupted)
			}
			assert.NoError(t, c.Close())
			assert.NoError(t, k.Close())
			assert.NoError(t, d.Close())
		})
	}
}

// TestGPUGuard: a kernel that touches what lies in front of a guarded block,
// behind it, or a block that was freed, faults. Each ends the context, so it runs
// in a process of its own.
func TestGPUGuard(t *testing.T) {
	gputest.Need(t)
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
