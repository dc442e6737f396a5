// Package debugtest has the pools that tests of the debug page show.
package debugtest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
)

// NewPool returns an allocator, on a simulated device if cfg names none.
func NewPool(t *testing.T, cfg cupool.Config) *cupool.Pool {
	t.Helper()
	if cfg.Driver == nil {
		cfg.Driver = simdev.New(simdev.Config{Capacity: 64 << 30})
	}
	c, err := cupool.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() }) // blocks are live
	return c
}

// Everything is a history of every allocation.
func Everything() *cupool.History { return &cupool.History{SampleBytes: 1} }

// Work allocates as training does: weights that stay, activations that come and go.
func Work(t *testing.T, c *cupool.Pool, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	s, err := c.NewStream()
	require.NoError(t, err)
	weights, input, grads := c.WithLabel("weights"), c.WithLabel("input pipeline"), c.WithLabel("gradients")
	var freed []cupool.Block
	get := func(a cupool.Allocator, n int64, on *cupool.Stream) cupool.Block {
		b, err := a.Alloc(n, on)
		require.NoError(t, err)
		return b
	}
	for i := range 240 {
		switch i % 6 {
		case 0:
			get(weights, 1<<20+r.Int64N(6<<20), nil)
		case 1:
			get(input, 100_000+r.Int64N(3<<20), s)
		case 2:
			get(grads, 4096+r.Int64N(2<<20), nil)
		case 3:
			get(c, 512+r.Int64N(100_000), nil)
		default:
			freed = append(freed, get(c, 4096+r.Int64N(4<<20), nil))
		}
	}
	for i, b := range freed {
		if i%4 == 0 {
			continue
		}
		if i%9 == 0 {
			require.NoError(t, c.RecordStream(b, s))
		}
		require.NoError(t, c.Free(b))
	}
}
