package cupool_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/snapshot"
)

// The sums of a profile of recorded allocations are those of the statistics, and a
// private pool's are in that of its allocator.
func TestWriteProfile(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c, _ := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.History = &cupool.History{SampleBytes: 1} })
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
	of := func(c *cupool.Pool) [4]int64 {
		st := c.Stats().All
		return [...]int64{st.Allocation.Allocated, st.RequestedBytes.Allocated, st.Allocation.Current, st.RequestedBytes.Current}
	}
	sums, pool := profiled(t, c)
	want, private := of(c), of(p)
	for i := range want {
		want[i] += private[i]
	}
	require.Equal(t, want, sums)
	require.Equal(t, private[3], pool)

	sums, pool = profiled(t, p)
	require.Equal(t, private, sums)
	require.Equal(t, private[3], pool)
}

// profiled returns the sums of a profile, and that of its live bytes with a pool's name.
func profiled(t *testing.T, c *cupool.Pool) (sums [4]int64, named int64) {
	var file bytes.Buffer
	require.NoError(t, snapshot.WriteProfile(&file, c.Snapshot()))
	p, err := profile.Parse(&file)
	require.NoError(t, err)
	for _, s := range p.Sample {
		for i, v := range s.Value {
			sums[i] += v
		}
		if len(s.Label["pool"]) > 0 {
			named += s.Value[3]
		}
		require.Regexp(t, `^github.com/cupool/cupool_test\.`, s.Location[0].Line[0].Function.Name)
	}
	return sums, named
}
