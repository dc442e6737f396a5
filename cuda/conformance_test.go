package cuda_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// configs are what the battery runs with: both ways to get memory, and
// little of it.
var configs = []struct {
	name string
	cfg  cupool.Config
}{
	{"vmm", cupool.Config{Backing: cupool.BackingAuto}},
	{"segments", cupool.Config{Backing: cupool.BackingSegments}},
	{"segments_limit", cupool.Config{Backing: cupool.BackingSegments, Limit: 192 << 20}},
}

// TestConformance runs the battery on a GPU, or on the stand-in driver,
// with each kind of memory.
func TestConformance(t *testing.T) {
	h := newHolder(t)
	for _, k := range []cuda.MemoryKind{cuda.MemoryDevice, cuda.MemoryManaged, cuda.MemoryPinned} {
		open := func(t *testing.T) cupool.Driver {
			gputest.Need(t)
			d, err := cuda.Open(0, cuda.Memory(k))
			require.NoError(t, err)
			require.Contains(t, d.Name(), k.String()+" memory")
			require.Equal(t, k != cuda.MemoryDevice, d.HostAccessible())
			return d
		}
		for _, c := range configs {
			if k != cuda.MemoryDevice && c.cfg.Backing == cupool.BackingAuto {
				continue // they have no virtual memory: the same as segments
			}
			if !testkit.Long() && c.cfg.Limit != 0 != (k == cuda.MemoryPinned) {
				continue // a limit with one kind
			}
			t.Run(fmt.Sprintf("%v/%s", k, c.name), func(t *testing.T) {
				opt := conformance.Options{Busy: h.busy}
				if k == cuda.MemoryPinned && !fakecuda.Loaded() {
					// cuMemHostAlloc waits for all that runs on a GPU, so that
					// nothing can be allocated while a kernel holds a stream.
					opt.Elastic = true
					opt.Busy = func(cupool.Driver, *cupool.Stream) (func(), error) { return nil, cupool.ErrNotSupported }
				}
				conformance.Run(t, open, c.cfg, opt)
			})
		}
	}
}

// TestPool runs the battery on a private pool, with each backing.
func TestPool(t *testing.T) {
	h := newHolder(t)
	opt := conformance.Options{Busy: h.busy, Wrap: func(c *cupool.Pool) (*cupool.Pool, error) {
		return c.NewPool(cupool.PoolConfig{})
	}}
	open := func(t *testing.T) cupool.Driver {
		gputest.Need(t)
		d, err := cuda.Open(0)
		require.NoError(t, err)
		return d
	}
	for _, c := range configs[:testkit.Choose(2, 1)] {
		t.Run(c.name, func(t *testing.T) { conformance.Run(t, open, c.cfg, opt) })
	}
}

// A holder keeps streams busy. Its kernels are loaded before anything is held,
// and it keeps the primary context, which takes a GPU long to make.
type holder struct{ *gputest.Kernels }

func newHolder(t *testing.T) holder {
	gputest.Need(t)
	d, err := cuda.Open(0)
	require.NoError(t, err)
	k, err := gputest.Load(d.Context())
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, k.Close())
		assert.NoError(t, d.Close())
	})
	return holder{k}
}

// busy is conformance.Options.Busy.
func (h holder) busy(_ cupool.Driver, s *cupool.Stream) (release func(), err error) {
	return h.Busy(uintptr(s.Handle()))
}
