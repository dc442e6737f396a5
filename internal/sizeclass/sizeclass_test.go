package sizeclass

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRound(t *testing.T) {
	for _, tc := range []struct{ size, want int64 }{
		{1, 512}, {511, 512}, {512, 512}, {513, 1024}, {1024, 1024}, {1025, 1536},
		{1<<20 - 1, 1 << 20}, {1 << 20, 1 << 20}, {1<<20 + 1, 1<<20 + 512},
		{MaxRequest, 1 << 61}, // does not overflow
	} {
		require.Equal(t, tc.want, Round(tc.size), "Round(%d)", tc.size)
	}
}

func TestRoundTo(t *testing.T) {
	for _, tc := range []struct{ size, unit, want int64 }{
		{1, 2 << 20, 2 << 20}, {2 << 20, 2 << 20, 2 << 20}, {2<<20 + 512, 2 << 20, 4 << 20},
		{10, 3, 12}, {12, 3, 12}, // any unit, not only powers of two
		{1 << 61, 2 << 20, 1 << 61},
	} {
		require.Equal(t, tc.want, RoundTo(tc.size, tc.unit), "RoundTo(%d, %d)", tc.size, tc.unit)
	}
}

// Bins must ascend with size, so that a smaller bin never holds the best fit.
func TestBinsAscend(t *testing.T) {
	last := Bin(Quantum)
	require.GreaterOrEqual(t, last, 0)
	for units := int64(2); units < 1<<16; units++ {
		bin := Bin(units * Quantum)
		require.True(t, bin == last || bin == last+1, "%d bytes: bin %d after bin %d", units*Quantum, bin, last)
		last = bin
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		a := (1 + r.Int64N(1<<54-1)>>r.IntN(54)) * Quantum
		b := (1 + r.Int64N(1<<54-1)>>r.IntN(54)) * Quantum
		if a > b {
			a, b = b, a
		}
		require.LessOrEqual(t, Bin(a), Bin(b), "sizes %d and %d", a, b)
	}
}

func TestBinsSpanThreePercent(t *testing.T) {
	for shift := range 48 {
		for m := int64(32); m < 64; m++ {
			first := m << shift * Quantum
			last := ((m+1)<<shift - 1) * Quantum
			require.Equal(t, Bin(first), Bin(last))
			require.LessOrEqual(t, float64(last-first)/float64(first), 1.0/32)
		}
	}
}

// A segment may be larger than any request, up to what an int64 holds.
func TestLargestBin(t *testing.T) {
	require.Less(t, Bin(Round(MaxRequest)), Bins)
	require.Equal(t, Bins-1, Bin((1<<54-1)*Quantum))
}

func TestRoundClass(t *testing.T) {
	for size, want := range map[int64]int64{
		512: 512, 4096: 4096, 7680: 7680, 8192: 8192, 8704: 9216, 9216: 9216, 16384: 16384, 16896: 18432,
		1 << 20: 1 << 20, 1<<20 + 512: 1<<20 + 1<<17, 15 << 20: 15 << 20,
	} {
		require.Equal(t, want, RoundClass(size, 3), "%d", size)
	}
	for size, want := range map[int64]int64{512: 512, 1024: 1024, 1536: 2048, 1<<20 + 512: 2 << 20, MaxRequest/Quantum*Quantum + Quantum: MaxRequest + 1} {
		require.Equal(t, want, RoundClass(size, 0), "%d", size)
	}
	for classBits := range 6 {
		for size := int64(Quantum); size < 1<<22; size += Quantum {
			got := RoundClass(size, classBits)
			require.GreaterOrEqual(t, got, size)
			require.Less(t, got-size, max(size>>classBits, 1))
			require.Equal(t, got, RoundClass(got, classBits))
		}
	}
}
