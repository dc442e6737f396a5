package conformance

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// sleeper is an allocator with memory of every sort: live and cached, in
// magazines, stitched, on several streams, closed and open.
type sleeper struct {
	*cupool.Pool
	e    *env
	f    *Failing
	s    *cupool.Stream // the same for all contents
	keep []piece        // contents survive
	lose []piece        // contents do not
}

// sleeper returns one, or skips the test without virtual memory.
func (e *env) sleeper(t *testing.T, d cupool.Driver) *sleeper {
	f := NewFailing(d)
	cfg := e.cfg
	cfg.Driver, cfg.Limit, cfg.Fraction = f, 0, 0
	if granularityOf(&cfg) == 0 {
		t.Skip("no virtual memory")
	}
	c, err := cupool.New(cfg)
	require.NoError(t, err)
	z := &sleeper{Pool: c, e: e, f: f}
	z.s, err = c.NewStream()
	require.NoError(t, err)
	closing, err := c.NewStream()
	require.NoError(t, err)
	large := 2*granularityOf(&cfg) + 512
	var holes []cupool.Block
	for i := range 6 {
		p := z.alloc(t, large, z.s, uint64(i))
		if i%2 == 0 {
			holes = append(holes, p.Block)
			continue
		}
		z.keep = append(z.keep, p)
	}
	for _, b := range holes {
		require.NoError(t, c.Free(b))
	}
	z.keep = append(z.keep, z.alloc(t, 2*large, z.s, 10)) // stitched
	z.lose = append(z.lose, z.alloc(t, 3000, nil, 11), z.alloc(t, large/2, closing, 12))
	for i := range 20 { // until the size has a home
		b := z.alloc(t, 5000, z.s, 13)
		if i%5 == 0 {
			z.keep = append(z.keep, b)
			continue
		}
		require.NoError(t, c.Free(b.Block))
	}
	require.NoError(t, closing.Close())
	// What was written on the default stream is read on another: a Sleep
	// that fails to wait orders neither.
	require.NoError(t, z.DefaultStream().Sync())
	return z
}

func (z *sleeper) alloc(t *testing.T, size int64, s *cupool.Stream, seed uint64) piece {
	b, err := z.Alloc(size, s)
	require.NoError(t, err)
	require.NoError(t, writeOr(z.e, b, seed, z.DefaultStream()))
	return piece{Block: b, seed: seed}
}

// sleep keeps the contents of the blocks that are to be kept.
func (z *sleeper) sleep() error {
	kept := map[cupool.Block]bool{}
	for _, p := range z.keep {
		kept[p.Block] = true
	}
	return z.Sleep(func(b cupool.Block) bool { return kept[b] })
}

// verify checks the contents that have to be there, or fails with what is
// not; blocks whose contents are lost are written to.
func (z *sleeper) verify() error {
	if z.e.opt.NoContents {
		return nil
	}
	for _, p := range z.keep {
		if err := verify(p.Block, p.seed, z.s); err != nil {
			return err
		}
	}
	for _, p := range z.lose {
		if err := errors.Join(write(p.Block, p.seed, z.s), verify(p.Block, p.seed, z.s)); err != nil {
			return err
		}
	}
	return nil
}

// end frees everything and closes.
func (z *sleeper) end(t *testing.T) {
	for _, p := range append(z.keep, z.lose...) {
		require.NoError(t, z.Free(p.Block))
	}
	require.NoError(t, z.EmptyCache())
	require.NoError(t, z.Check())
	require.NoError(t, z.Close())
	require.Zero(t, z.f.Held())
	require.Zero(t, z.f.Ranges())
}

// testSleep: asleep, the device has everything back and nothing can be
// allocated; awake, everything is where it was, with what was to be kept.
func testSleep(t *testing.T, e *env) {
	d := e.open(t)
	defer func() { require.NoError(t, d.Close()) }()
	z := e.sleeper(t, d)
	require.NotZero(t, z.Stats().Stitches)
	require.NoError(t, z.Wake(), "awake already")
	for range 3 {
		before := z.Stats()
		require.NoError(t, z.sleep())
		require.Zero(t, z.f.Held())
		require.NoError(t, z.Check())
		st := z.Stats()
		require.Zero(t, st.All.ReservedBytes.Current)
		require.Equal(t, before.LiveBytes, st.LiveBytes)
		require.Equal(t, st.LiveBytes+st.CachedBytes, st.AsleepBytes)
		for _, size := range []int64{1, 5000, 3000, 10 * mib} {
			_, err := z.Alloc(size, z.s)
			require.ErrorIs(t, err, cupool.ErrAsleep)
			_, err = z.Alloc(size, nil)
			require.ErrorIs(t, err, cupool.ErrAsleep)
		}
		require.ErrorIs(t, z.Sleep(nil), cupool.ErrAsleep)
		require.ErrorIs(t, z.EmptyCache(), cupool.ErrAsleep)
		require.ErrorIs(t, testkit.Second(z.Trim(0)), cupool.ErrAsleep)
		require.Zero(t, z.f.Held())

		gone := z.keep[0] // frees go on meanwhile
		z.keep = z.keep[1:]
		require.NoError(t, z.Free(gone.Block))
		require.ErrorIs(t, z.Free(gone.Block), cupool.ErrDoubleFree)
		_, err := z.Alloc(gone.Size(), z.s)
		require.ErrorIs(t, err, cupool.ErrAsleep)
		require.NoError(t, z.Check())

		require.NoError(t, z.Wake())
		require.NoError(t, z.Check())
		require.Zero(t, z.Stats().AsleepBytes)
		require.Equal(t, z.f.Held(), z.Stats().All.ReservedBytes.Current)
		require.NoError(t, z.verify())
		for range 3 {
			again := z.alloc(t, gone.Size(), z.s, 99)
			require.NoError(t, z.verify())
			require.NoError(t, z.Free(again.Block))
		}
	}
	z.end(t)
}
