package cupool_test

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

func TestLabels(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	x := pooltest.NewScript(t, c, d)
	enc, dec := c.WithLabel("encoder"), c.WithLabel("decoder")
	alloc := func(a cupool.Allocator, size int64) cupool.Block {
		b, err := a.Alloc(size, nil)
		require.NoError(t, err)
		return b
	}
	a, b := alloc(enc, 1000), alloc(enc, 3*mib)
	alloc(dec, 0)
	x.Run("plain=5M")
	stat := func(cur, peak, allocated, freed int64) cupool.Stat {
		return cupool.Stat{Current: cur, Peak: peak, Allocated: allocated, Freed: freed}
	}
	require.Equal(t, []cupool.LabelStats{
		{Label: "decoder"},
		{Label: "encoder", Blocks: stat(2, 2, 2, 0), Bytes: stat(3*mib+1000, 3*mib+1000, 3*mib+1000, 0)},
	}, c.Stats().Labels)

	require.Regexp(t, `^0 small: \[Live 1K encoder\].*\[Live 3M encoder\]\[Live 5M\]`, strings.ReplaceAll(c.Snapshot().Layout(), "\n", ""))
	require.NoError(t, dec.Free(a), "who frees it does not matter")
	require.NoError(t, c.FreePtr(b.Ptr(), b.Size()))
	require.ErrorIs(t, enc.Free(b), cupool.ErrDoubleFree)
	require.Equal(t, cupool.LabelStats{Label: "encoder", Blocks: stat(0, 2, 2, 2), Bytes: stat(0, 3*mib+1000, 3*mib+1000, 3*mib+1000)}, c.Stats().Labels[1])

	// A block that others use counts until they are done.
	p := alloc(c.WithLabel("decoder"), 2*mib)
	x.Run("busy:1")
	require.NoError(t, c.FreeOn(p, x.Stream("1")))
	require.EqualValues(t, 2*mib, c.Stats().Labels[0].Bytes.Current)
	x.Run("idle:1 process")
	require.Zero(t, c.Stats().Labels[0].Bytes.Current)

	c.ResetPeak()
	require.Equal(t, stat(0, 0, 2*mib, 2*mib), c.Stats().Labels[0].Bytes)

	alloc(dec, 512)
	require.Contains(t, c.Stats().String(), "\nfor decoder: 1 blocks, 512 B; at most 1, 512 B\n")
	err := c.Close()
	require.ErrorContains(t, err, "1 block, 512 B, for decoder")
	require.Zero(t, c.Stats().Labels[0].Bytes.Current)
	_, err = dec.Alloc(1, nil)
	require.ErrorIs(t, err, cupool.ErrClosed)
}

// A label and the stack stand side by side.
func TestLabelsWithStacks(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.History = &cupool.History{SampleBytes: 1} })
	_, err := c.WithLabel("encoder").Alloc(1000, nil)
	require.NoError(t, err)
	var leak *cupool.LeakError
	require.ErrorAs(t, c.Close(), &leak)
	require.Equal(t, "encoder", leak.Leaks[0].Label)
	require.Contains(t, leak.Leaks[0].Stack, "TestLabelsWithStacks")
}

// Labeled and other blocks of the same sizes go through the same magazines
// and pools.
func TestLabelsInGoroutines(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	c, _ := pooltest.NewParallel(t, 1<<34, pooltest.WithMagazines)
	views := []cupool.Allocator{c, c.WithLabel("a"), c.WithLabel("b")}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(g)))
			var live []cupool.Block
			for range 3000 {
				if len(live) > 20 || len(live) > 0 && r.IntN(2) == 0 {
					i := r.IntN(len(live))
					if err := views[r.IntN(3)].Free(live[i]); err != nil {
						t.Error(err)
					}
					live = append(live[:i], live[i+1:]...)
					continue
				}
				b, err := views[r.IntN(3)].Alloc([]int64{512, 5000, 2 * mib}[r.IntN(3)], nil)
				if err != nil {
					t.Error(err)
				}
				live = append(live, b)
			}
			for _, b := range live {
				if err := c.Free(b); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, c.Check())
	for _, l := range c.Stats().Labels {
		require.Zero(t, l.Blocks.Current)
		require.Zero(t, l.Bytes.Current)
		require.Equal(t, l.Bytes.Allocated, l.Bytes.Freed)
		require.Positive(t, l.Blocks.Allocated)
	}
	require.Zero(t, c.Stats().LiveBytes)
}

// The battery for any Allocator, with labels.
func TestConformanceLabels(t *testing.T) {
	conformance.RunAllocator(t, func(t *testing.T) cupool.Allocator {
		d := openHost(t)
		c, err := cupool.New(cupool.Config{Driver: d})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, c.Close())
			require.NoError(t, d.Close())
		})
		return c.WithLabel("tested")
	})
}

func BenchmarkLabeled(b *testing.B) {
	c, _ := pooltest.New(b, 1<<30, pooltest.WithMagazines)
	a := c.WithLabel("measured")
	pooltest.NewScript(b, c, nil).Run("x=100K free:x") // below the peak, as most of the time
	b.ReportAllocs()
	for b.Loop() {
		x, err := a.Alloc(5000, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := a.Free(x); err != nil {
			b.Fatal(err)
		}
	}
}
