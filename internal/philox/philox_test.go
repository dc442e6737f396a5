package philox

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWords compares with the known answers of Random123, the authors' own
// implementation (kat_vectors, philox4x32 10).
func TestWords(t *testing.T) {
	require.Equal(t, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, Words(0, 0, 0))
	ones := uint64(math.MaxUint64)
	require.Equal(t, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}, Words(ones, ones, ones))
	require.Equal(t, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		Words(0x85a308d3243f6a88, 0x0370734413198a2e, 0x299f31d0a4093822))
}

func TestDistributions(t *testing.T) {
	t.Run("float32", testDistributions[float32])
	t.Run("float64", testDistributions[float64])
}

func testDistributions[T float32 | float64](t *testing.T) {
	const n = 100001 // no multiple of what a counter makes
	dst := make([]T, n)
	Uniform(dst, -1, 3, 7, 42)
	mean, variance := moments(dst)
	for _, x := range dst {
		require.True(t, x >= -1 && x < 2, "%v", x)
	}
	require.InDelta(t, 0.5, mean, 0.02)
	require.InDelta(t, 9.0/12, variance, 0.02)
	Normal(dst, 3, 2, 7, 42)
	mean, variance = moments(dst)
	require.InDelta(t, 3, mean, 0.04)
	require.InDelta(t, 4, variance, 0.1)

	// A prefix is the same, another stream is not.
	short, other := make([]T, 5), make([]T, 5)
	Normal(short, 3, 2, 7, 42)
	Normal(other, 3, 2, 8, 42)
	require.Equal(t, dst[:5], short)
	require.NotEqual(t, short, other)
}

func moments[T float32 | float64](xs []T) (mean, variance float64) {
	for _, x := range xs {
		mean += float64(x) / float64(len(xs))
	}
	for _, x := range xs {
		variance += (float64(x) - mean) * (float64(x) - mean) / float64(len(xs))
	}
	return mean, variance
}
