package block

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"

	"github.com/cupool/cupool/internal/sizeclass"
)

func TestFastBins(t *testing.T) {
	const q = sizeclass.Quantum
	set, free := setUp()
	bins := &FastBins{Table: set.Table}
	push := func(units int64) ID {
		id, b := free(uint64(units)<<20, units*q)
		bins.Push(id, b)
		require.Equal(t, Cached, b.Word().State())
		return id
	}
	pop := func(units int64) ID { id, _ := bins.Pop(units * q); return id }

	require.Zero(t, pop(1), "empty")
	require.Zero(t, bins.Largest())
	first, second := push(4), push(4)
	require.Zero(t, pop(3), "a quarter more is too much")
	require.Zero(t, pop(5), "smaller than the request")
	require.Equal(t, second, pop(4), "the last that came")
	require.Equal(t, first, pop(4))
	require.Zero(t, pop(4))

	a := push(36)
	require.Equal(t, a, pop(32), "an eighth more")
	a = push(37)
	require.Zero(t, pop(32))
	require.Equal(t, a, pop(33))

	low, high := push(1024), push(1039) // of one bin
	require.Equal(t, high, pop(1030))
	require.Zero(t, pop(1030), "another of the bin is too small")
	require.Equal(t, low, pop(1000), "of the next bin")
	require.Zero(t, bins.Len())
}

func TestFastLimit(t *testing.T) {
	require.Equal(t, fastClasses-1, sizeclass.Bin(FastLimit))
	require.Equal(t, fastClasses, sizeclass.Bin(FastLimit+sizeclass.Quantum))
}

// Against a map of what was pushed: what comes out was inside, is large
// enough and not too large, and everything comes out in the end.
func TestFastBinsRandom(t *testing.T) {
	r := testkit.Rand(t)
	set, free := setUp()
	bins := &FastBins{Table: set.Table}
	in := map[ID]int64{}
	served := 0
	for range 20_000 {
		size := (1 + r.Int64N(1<<r.IntN(12))) * sizeclass.Quantum
		if id, b := bins.Pop(size); id != 0 {
			require.Equal(t, in[id], b.Size)
			require.GreaterOrEqual(t, b.Size, size)
			require.LessOrEqual(t, b.Size-size, size/8)
			delete(in, id)
			served++
			set.Table.giveBack([]ID{id})
		}
		if r.IntN(2) == 0 {
			id, b := free(0, (1+r.Int64N(1<<r.IntN(12)))*sizeclass.Quantum)
			bins.Push(id, b)
			in[id] = b.Size
		}
		require.Equal(t, len(in), bins.Len())
		var most int64
		for _, size := range in {
			most = max(most, size)
		}
		require.Equal(t, most, bins.Largest())
	}
	require.NotZero(t, served)
	last := FastLimit + sizeclass.Quantum
	for id, b := bins.PopLargest(); id != 0; id, b = bins.PopLargest() {
		require.Equal(t, in[id], b.Size)
		require.LessOrEqual(t, sizeclass.Bin(b.Size), sizeclass.Bin(int64(last)))
		last = int(b.Size)
		delete(in, id)
	}
	require.Empty(t, in)
	require.Zero(t, bins.Len())
}
