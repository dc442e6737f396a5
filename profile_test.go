package cupool_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// The sums of a profile of recorded allocations are those of the statistics, and a
// private pool's are in that of its allocator.
func TestWriteProfile(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c, _ := newPool(t, 1<<30, func(cfg *cupool.Config) { cfg.History = &cupool.History{SampleBytes: 1} })
	p := newPrivate(t, c, cupool.PoolConfig{Name: "private"})
	s := newStreamOf(t, c)
	var live []cupool.Block
	for range 500 {
		a := []cupool.Allocator{c, p, c.WithLabel("x")}[r.IntN(3)]
		b, err := a.Alloc(1+r.Int64N(100_000), []*cupool.Stream{nil, s}[r.IntN(2)])
		require.NoError(t, err)
		live = append(live, b)
		if i := r.IntN(len(live)); r.IntN(2) == 0 {
			require.NoError(t, c.Free(live[i]))
			live = append(live[:i], live[i+1:]...)
		}
	}
	of := func(c *cupool.Caching) (blocks, bytes int64) {
		st := c.Stats().All
		return st.Allocation.Current, st.RequestedBytes.Current
	}
	objects, space, pool := profiled(t, c)
	blocks, bytes := of(c)
	more, moreBytes := of(p)
	require.Equal(t, []int64{blocks + more, bytes + moreBytes}, []int64{objects, space})
	require.Equal(t, moreBytes, pool)

	objects, space, pool = profiled(t, p)
	require.Equal(t, []int64{more, moreBytes, moreBytes}, []int64{objects, space, pool})
}

// profiled returns the sums of a profile, and that of its bytes with a pool's name.
func profiled(t *testing.T, c *cupool.Caching) (objects, space, named int64) {
	var file bytes.Buffer
	require.NoError(t, c.WriteProfile(&file))
	p, err := profile.Parse(&file)
	require.NoError(t, err)
	for _, s := range p.Sample {
		objects, space = objects+s.Value[2], space+s.Value[3]
		if len(s.Label["pool"]) > 0 {
			named += s.Value[3]
		}
		require.Regexp(t, `^github.com/cupool/cupool_test\.`, s.Location[0].Line[0].Function.Name)
	}
	return objects, space, named
}
