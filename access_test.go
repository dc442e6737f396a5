package cupool_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/snapshot"
)

// shapeOf is what Access.Shape counts, of a snapshot.
func shapeOf(s cupool.Snapshot) (shape [2]poolaccess.Shape) {
	for _, seg := range s.Segments {
		of := &shape[0]
		if seg.Type == "large" {
			of = &shape[1]
		}
		var stretch []snapshot.Block
		end := func() {
			if len(stretch) > 0 {
				of.Segments++
			}
			for _, b := range stretch {
				if len(stretch) > 1 && (b.State == snapshot.Free || b.State == snapshot.Cached) {
					of.Free++
					of.FreeBytes += b.Size
				}
			}
			stretch = nil
		}
		for _, b := range seg.Blocks {
			if b.State == snapshot.Gap || b.State == snapshot.Part {
				end()
			} else {
				stretch = append(stretch, b)
			}
		}
		end()
	}
	return shape
}

// TestPlaces: in a random program, what is found at addresses and counted as segments is as a
// snapshot has it.
func TestPlaces(t *testing.T) {
	pooltest.Backings(t, 512*mib, func(t *testing.T, c *cupool.Pool) {
		r := testkit.Rand(t)
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		pools := []*cupool.Pool{c, p}
		streams := []*cupool.Stream{nil, pooltest.NewStream(t, c)}
		var live []cupool.Block
		for step := range 400 {
			if n := len(live); n > 20 || n > 0 && r.IntN(3) == 0 {
				i := r.IntN(n)
				if r.IntN(4) == 0 {
					require.NoError(t, c.RecordStream(live[i], streams[r.IntN(2)]))
				}
				require.NoError(t, c.Free(live[i]))
				live[i] = live[n-1]
				live = live[:n-1]
			} else {
				live = append(live, pooltest.Alloc(t, pools[r.IntN(2)], 1+r.Int64N(1<<(9+r.IntN(14))), streams[r.IntN(2)]))
			}
			if step%20 != 0 {
				continue
			}
			for _, of := range pools {
				a := poolaccess.Of(of)
				s := a.Snapshot()
				require.Equal(t, shapeOf(s), a.Shape())
				for _, seg := range s.Segments {
					base, sizes := device.Ptr(0), map[device.Ptr]int64{} // of the stretches
					bases := make([]device.Ptr, len(seg.Blocks))
					for i, b := range seg.Blocks {
						if b.State == snapshot.Gap || b.State == snapshot.Part {
							base = 0
							continue
						}
						if base == 0 {
							base = b.Address
						}
						bases[i] = base
						sizes[base] += b.Size
					}
					for i, b := range seg.Blocks {
						if bases[i] == 0 {
							continue
						}
						at, ok := a.At(b.Address + device.Ptr(r.Int64N(b.Size)))
						require.True(t, ok)
						require.Same(t, of, at.Pool)
						require.Equal(t, []any{b.Address, b.Size, b.Requested, b.State, bases[i], sizes[bases[i]], seg.Virtual},
							[]any{at.Address, at.Size, at.Requested, at.State, at.Base, at.BaseSize, at.Virtual})
					}
				}
			}
		}
		_, ok := poolaccess.Of(c).At(8)
		require.False(t, ok)
		freeAll(t, c, live)
	})
}

// TestAllocAt: a pool's layout comes back at the same addresses after everything was freed and
// others were there, however random it is; what cannot be is refused and changes nothing.
func TestAllocAt(t *testing.T) {
	d := simdev.New(simdev.Config{Capacity: 512 * mib})
	segments := cupool.PoolConfig{Isolated: true, Alloc: d.MemAlloc, Free: func(p cupool.Ptr, _ int64) error { return d.MemFree(p) }}
	for name, cfg := range map[string]cupool.PoolConfig{"segments": segments, "virtual": {Isolated: true}} {
		t.Run(name, func(t *testing.T) {
			c := pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingVMM})
			allocAt(t, c, pooltest.NewPrivate(t, c, cfg), cfg.Alloc == nil)
			require.NoError(t, c.Close())
		})
	}
}

// allocAt is TestAllocAt of a pool, some of whose live blocks have to be stitched.
func allocAt(t *testing.T, c, p *cupool.Pool, stitched bool) {
	s := pooltest.NewStream(t, c)
	r := testkit.Rand(t)
	a := poolaccess.Of(p)
	fillPool := func() (live []cupool.Block) {
		for range 60 {
			live = append(live, pooltest.Alloc(t, p, 1+r.Int64N(1<<(9+r.IntN(15))), s))
			if i := r.IntN(len(live)); r.IntN(2) == 0 {
				require.NoError(t, p.Free(live[i]))
				live = append(live[:i], live[i+1:]...)
			}
		}
		return live
	}
	freeAll(t, p, fillPool())
	live := fillPool()
	want := a.Snapshot()
	isStitched := func(s snapshot.Segment) bool { return s.Stitched && s.Allocated > 0 }
	for stitched && !slices.ContainsFunc(want.Segments, isStitched) {
		freeAll(t, p, live)
		live = fillPool()
		want = a.Snapshot()
	}
	freeAll(t, p, live)
	freeAll(t, p, fillPool())
	for _, seg := range want.Segments {
		for _, b := range seg.Blocks {
			if b.State == snapshot.Live {
				for _, n := range [][2]int64{{b.Size, b.Size + 1}, {b.Size, 0}, {b.Size, -1}, {b.Size - 1, 1}, {0, 0}, {-512, -512}} {
					require.ErrorIs(t, a.AllocAt(b.Address, n[0], n[1], s), cupool.ErrInvalidSize, n)
				}
				require.ErrorIs(t, a.AllocAt(b.Address+1, b.Size, b.Size, s), device.ErrInvalidRange)
				require.ErrorIs(t, a.AllocAt(b.Address, 1<<40, 1, s), device.ErrInvalidRange)
				require.ErrorIs(t, a.AllocAt(b.Address, math.MaxInt64&^511, 1, s), device.ErrInvalidRange)
				require.ErrorIs(t, a.AllocAt(b.Address, b.Size, b.Requested, (*cupool.Stream)(nil)), cupool.ErrForeignStream)
				require.NoError(t, a.AllocAt(b.Address, b.Size, b.Requested, s))
				require.ErrorIs(t, a.AllocAt(b.Address, b.Size, b.Requested, s), device.ErrInvalidRange)
			}
		}
	}
	require.ErrorIs(t, a.AllocAt(8, 512, 512, s), cupool.ErrForeignPointer)
	require.NoError(t, p.Check())
	layout := func(s cupool.Snapshot) (all [][4]int64) {
		for _, seg := range s.Segments {
			for _, b := range seg.Blocks {
				if b.State == snapshot.Live {
					all = append(all, [4]int64{int64(seg.Address), int64(b.Address), b.Size, b.Requested})
				}
			}
		}
		return all
	}
	now := a.Snapshot()
	require.Equal(t, layout(want), layout(now))
	require.Equal(t, p.Stats().LiveBytes, func() (n int64) {
		for _, seg := range now.Segments {
			n += seg.Allocated
		}
		return n
	}())
	for _, b := range live {
		require.NoError(t, p.FreePtr(b.Ptr(), b.Size()))
	}
	require.NoError(t, p.Check())
}

// TestHomeOf: a home that package poolaccess tells of is that of the block at the address.
func TestHomeOf(t *testing.T) {
	c, _ := pooltest.New(t, 64*mib, pooltest.WithMagazines)
	a := poolaccess.Of(c)
	b := pooltest.Alloc(t, c, 4096, nil)
	line, _ := a.Home(b.Ptr())
	require.Nil(t, line, "it has no place in the magazines")
	for range 4 {
		require.NoError(t, c.Free(b))
		b = pooltest.Alloc(t, c, 4096, nil)
	}
	line, _ = a.Home(b.Ptr())
	require.NotNil(t, line)
	other, _ := a.Home(b.Ptr() + 512)
	require.Nil(t, other)
	word := (*[4]uint64)(line)
	require.EqualValues(t, b.Ptr(), word[1])
	require.EqualValues(t, 4096, word[2])
	require.NoError(t, c.Free(b))
	line, _ = a.Home(b.Ptr())
	require.Nil(t, line, "it is not live")
}

// TestSetLimitOfThreshold: GarbageCollectionThreshold is a part of the limit that SetLimit sets, and without one of the
// device's memory.
func TestSetLimitOfThreshold(t *testing.T) {
	c, _ := pooltest.New(t, 1000*mib, func(cfg *cupool.Config) {
		cfg.Backing, cfg.GarbageCollectionThreshold = cupool.BackingSegments, 0.5
	})
	pools := []*cupool.Pool{c, pooltest.NewPrivate(t, c, cupool.PoolConfig{})}
	for _, limit := range []int64{0, 400 * mib, 0} {
		poolaccess.Of(c).SetLimit(limit, 1000*mib, limit, 0)
		want := int64(310 * mib)
		if limit > 0 {
			want = 160 * mib
		}
		for _, p := range append(pools, pooltest.NewPrivate(t, c, cupool.PoolConfig{})) {
			require.Equal(t, want, afterRow(t, p), "limit %d", limit)
		}
	}
}
