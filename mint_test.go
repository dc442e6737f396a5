package cupool_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/snapshot"
)

func TestMint(t *testing.T) {
	m, other := cupool.NewMint(), cupool.NewMint()
	require.NotEqual(t, m, other)
	b := m.Block(1<<20, 5000, 1<<63+7, 1<<31+3)
	require.False(t, b.IsEmpty())
	require.Equal(t, cupool.Ptr(1<<20), b.Ptr())
	require.EqualValues(t, 5000, b.Size())
	require.Equal(t, m.Number(), b.Maker())
	id, gen, ok := m.Open(b)
	require.True(t, ok)
	require.EqualValues(t, 1<<31+3, id)
	require.EqualValues(t, uint64(1<<63+7), gen)
	_, _, ok = other.Open(b)
	require.False(t, ok)
	_, _, ok = m.Open(cupool.Block{})
	require.False(t, ok, "the empty block is nobody's")
	_, _, ok = cupool.Mint{}.Open(cupool.Block{})
	require.False(t, ok, "not even the zero Mint's")
	require.False(t, m.Block(512, 1, 0, 0).IsEmpty())

	c := pooltest.Open(t, cupool.Config{})
	defer func() { require.NoError(t, c.Close()) }()
	require.ErrorIs(t, c.Free(b), cupool.ErrForeignPointer)
	require.Nil(t, c.StreamOf(b))
	require.Nil(t, c.StreamOf(cupool.Block{}))
}

// TestSeam: what an allocator over a Pool or one of its pools asks it.
func TestSeam(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{}), SmallLimit: 1 << 18})
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Limit: 1 << 30, NoSplit: true})
	isolated := pooltest.NewPrivate(t, c, cupool.PoolConfig{Isolated: true})
	isolatedSegments := pooltest.NewPrivate(t, c, cupool.PoolConfig{Isolated: true, NoSplit: true})
	s := pooltest.NewStream(t, p)
	for _, a := range []*cupool.Pool{c, p, isolated, isolatedSegments} {
		require.NoError(t, a.Err())
		require.Same(t, c, a.DefaultStream().Pool())
		b := must(a.Alloc(40<<20, s))
		require.Same(t, s, a.StreamOf(b))
		require.NoError(t, a.Free(b))
	}
	require.Same(t, c, s.Pool())
	require.EqualValues(t, 1<<18, p.Config().SmallLimit)
	require.Equal(t, cupool.BackingVMM, c.Config().Backing)
	require.Equal(t, cupool.BackingSegments, p.Config().Backing, "of NoSplit")

	require.NoError(t, p.Sync())
	released, err := poolaccess.Of(p).Reclaim(30 << 20)
	require.NoError(t, err)
	require.GreaterOrEqual(t, released, int64(60<<20), "of both, but not of the one that is isolated")
	require.EqualValues(t, 40<<20, isolated.Stats().CachedBytes)
	require.EqualValues(t, 40<<20, isolatedSegments.Stats().CachedBytes)

	live := must(c.Alloc(1000, s))
	require.False(t, s.Closed())
	require.NoError(t, s.Close())
	require.True(t, s.Closed())
	require.Same(t, c.DefaultStream(), c.StreamOf(live))
	require.NoError(t, c.Free(live))

	require.NoError(t, c.Sleep(nil))
	require.ErrorIs(t, c.Err(), cupool.ErrAsleep)
	require.NoError(t, c.Wake())
	require.NoError(t, c.Err())
	lost := errors.Join(errors.New("x"), cupool.ErrDeviceLost)
	require.NoError(t, poolaccess.Of(c).DriverError(nil))
	require.Equal(t, lost, poolaccess.Of(p).DriverError(lost))
	for _, a := range []*cupool.Pool{c, p} {
		require.ErrorIs(t, a.Err(), cupool.ErrDeviceLost)
	}
	_ = c.Close() // the device is lost
	require.ErrorIs(t, c.Err(), cupool.ErrClosed)
	require.ErrorIs(t, p.Err(), cupool.ErrClosed)
	require.True(t, c.DefaultStream().Closed())
}

// allocExact allocates as an allocator does that keeps the memory.
func allocExact(t *testing.T, c *cupool.Pool, size int64, s *cupool.Stream) cupool.Block {
	b := must(c.Alloc(size, s))
	require.NoError(t, poolaccess.Of(c).Cut(b))
	return b
}

// TestCut: memory that an allocator keeps takes no more of the device than it has
// bytes, in units of a handle, beside live blocks and on any stream. What other blocks
// share a handle with stays.
func TestCut(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingVMM, cupool.BackingSegments} {
		c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{}), Backing: backing, History: &cupool.History{}})
		s := pooltest.NewStream(t, c)
		trims := func() (sizes []int64) {
			for _, e := range poolaccess.Of(c).Events(0) {
				if e.Kind == snapshot.Trim {
					sizes = append(sizes, e.Size)
				}
			}
			return sizes
		}
		for _, on := range []*cupool.Stream{nil, s} {
			reserved := func() int64 { return c.Stats().All.ReservedBytes.Current }
			weights := must(c.Alloc(6<<20, on))
			require.NoError(t, c.Free(must(c.Alloc(500<<20, on)))) // handles of 16 MiB
			b := must(c.Alloc(100<<20+512, on))
			held, noted := reserved(), trims()
			for range 2 { // the second time there is nothing to cut
				require.NoError(t, poolaccess.Of(c).Cut(b))
				require.NoError(t, c.Check())
			}
			if went := held - reserved(); went > 0 {
				noted = append(noted, went)
			}
			require.Equal(t, noted, trims())
			must(c.Trim(0))
			most := int64(6+102) << 20
			if backing == cupool.BackingSegments {
				most = 600 << 20
			}
			require.LessOrEqual(t, reserved(), most)
			require.Same(t, c.StreamOf(weights), c.StreamOf(b))
			require.NoError(t, errors.Join(c.Free(b), c.Free(weights)))
			must(c.Trim(0))
			require.Zero(t, reserved())
		}
		require.True(t, allocExact(t, c, 0, s).IsEmpty())
		require.NoError(t, c.Close())
	}
}

// TestCutAsItIs: the handle stays as it is where work of the stream is late, and
// where a sanitizer has filled the block.
func TestCutAsItIs(t *testing.T) {
	for name, cfg := range map[string]cupool.Config{
		"late work": {Driver: simdev.New(simdev.Config{ManualEvents: true}), WaitTimeout: time.Millisecond},
		"sanitizer": {Driver: must(cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 30})), Sanitize: cupool.Sanitizers{Canaries: 512, Quarantine: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Backing = cupool.BackingVMM
			c := pooltest.Open(t, cfg)
			require.NoError(t, c.Free(must(c.Alloc(200<<20, nil))))
			if d, ok := cfg.Driver.(*simdev.Device); ok {
				require.NoError(t, d.Launch(0, func() {}))
			}
			if name == "sanitizer" {
				require.NoError(t, c.DefaultStream().Sync()) // it has filled the block
			}
			reserved := c.Stats().All.ReservedBytes.Current
			b := allocExact(t, c, 100<<20+512, nil)
			require.Equal(t, reserved, c.Stats().All.ReservedBytes.Current)
			require.NoError(t, c.Free(b))
			_ = c.Close()
		})
	}
}

// TestCutLent: a block that a pool with UseOnOOM lends is not cut. Its number, which
// another block of the allocator may have, says nothing to the allocator.
func TestCutLent(t *testing.T) {
	for name, small := range map[string]int{"a number of the allocator": 0, "a number of the pool alone": 20_000} {
		t.Run(name, func(t *testing.T) {
			c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 100 << 20}), Backing: cupool.BackingVMM})
			p := pooltest.NewPrivate(t, c, cupool.PoolConfig{UseOnOOM: true})
			require.NoError(t, c.Free(must(c.Alloc(41<<20, nil))))
			live := must(c.Alloc(37<<20, nil)) // ends within a handle, the rest of which is free
			for range small {
				must(p.Alloc(512, nil))
			}
			require.NoError(t, p.Free(must(p.Alloc(41<<20, nil))))
			require.NoError(t, c.Sync())
			b := must(c.Alloc(39<<20, nil)) // the device is full
			require.NotEqual(t, live.Maker(), b.Maker())
			reserved := c.Stats().All.ReservedBytes.Current
			require.NoError(t, poolaccess.Of(c).Cut(b))
			require.Equal(t, reserved, c.Stats().All.ReservedBytes.Current, "the memory behind a live block stays")
			require.NoError(t, errors.Join(c.Check(), p.Check(), c.Free(live), c.Free(b)))
		})
	}
}

// TestCutLentByStream: nor is one that another stream lends.
func TestCutLentByStream(t *testing.T) {
	x := newLending(t, cupool.Config{})
	b := x.alloc(58*mib, x.asks) // the lender's handles are of 4 MiB
	require.True(t, x.c.IsLent(b))
	require.NoError(t, poolaccess.Of(x.c).Cut(b))
	require.EqualValues(t, 64*mib, x.c.Stats().All.ReservedBytes.Current)
	x.close(b)
}

// TestStreamOfHomed: the stream of a block that has a place in the magazines is found
// while somebody holds the lock of its heap.
func TestStreamOfHomed(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{})})
	b := pooltest.Alloc(t, c, 4096, nil)
	for range 20 {
		require.NoError(t, c.Free(b))
		b = pooltest.Alloc(t, c, 4096, nil)
	}
	require.NotZero(t, c.HomedBytes())
	unlock := c.LockHeap(c.DefaultStream())
	require.Same(t, c.DefaultStream(), c.StreamOf(b))
	unlock()
	require.NoError(t, c.Free(b))
	require.NoError(t, c.Close())
}
