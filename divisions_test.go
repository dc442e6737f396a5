package cupool_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

func TestParseDivisions(t *testing.T) {
	same := cupool.SameDivisions
	for text, want := range map[string]cupool.Divisions{
		"1":                        same(1),
		"8":                        same(8),
		" 4 ":                      same(4),
		"[>:2]":                    same(2),
		"[256:2]":                  {2, 2, 2, 2, 2, 2, 2, 2, 2},
		"[1:8,4:2]":                {8, 0, 2}, // what is not listed stays alone
		"[ 2:8, >:4 ]":             {8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4},
		"[32768:16]":               same(16),
		"[16384:2,32768:16]":       {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 16},
		"[256:1,512:2,1024:4,>:8]": {1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8},
	} {
		got, err := cupool.ParseDivisions(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := cupool.ParseDivisions(got.String())
		require.NoError(t, err, got.String())
		require.Equal(t, got.String(), again.String())
	}
	for text, reason := range map[string]string{
		"": "power of two", "0": "power of two", "3": "power of two", "-2": "power of two", "x": "power of two", "1e3": "power of two",
		"2097152": "power of two", "[": "end with ]", "[4": "end with ]", "[]": "SIZE:DIVISIONS", "[4]": "SIZE:DIVISIONS", "[4:3]": "SIZE:DIVISIONS",
		"[3:4]": "power of two from 1", "[65536:4]": "power of two from 1", "[0:4]": "power of two from 1", "[-1:4]": "power of two from 1",
		"[4:2,2:2]": "ascend", "[4:2,4:2]": "ascend", "[>:2,4:2]": "ascend", "[>:2,>:4]": "ascend", "[1:2097152]": "SIZE:DIVISIONS",
	} {
		_, err := cupool.ParseDivisions(text)
		var ce *cupool.ConfigError
		require.ErrorAs(t, err, &ce, text)
		require.Contains(t, ce.Reason, reason, text)
	}
	require.Equal(t, "none", cupool.Divisions{}.String())
}

// What PyTorch's test_allocator_settings asks of roundup_power2_divisions, and
// the formula of its round_size.
func TestDivisionsRoundAsPyTorch(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, text := range []string{"4", "64", "[1:2,2:4,>:8]", "[64:8,128:2,256:4,512:2,1024:4,>:8]"} {
		d, err := cupool.ParseDivisions(text)
		require.NoError(t, err)
		c, _ := newPool(t, 1<<40, func(cfg *cupool.Config) { cfg.Divisions, cfg.MinSplit = d, 512 })
		for range 300 {
			size := 1 + r.Int64N(1<<(1+r.IntN(33)))
			b, err := c.Alloc(size, nil)
			require.NoError(t, err)
			require.Equal(t, torchRound(size, d), c.Stats().LiveBytes, "%s: %d bytes", text, size)
			require.NoError(t, c.Free(b))
		}
	}
}

// torchRound is PyTorch's round_size, with its floating point.
func torchRound(size int64, d cupool.Divisions) int64 {
	quantum := func(n int64) int64 { return (n + 511) / 512 * 512 }
	if size < 512 {
		return 512
	}
	n := int64(d[min(max(int(math.Floor(math.Log2(float64(size))))-20, 0), 15)])
	if n <= 1 || size <= 512*n {
		return quantum(size)
	}
	floor := int64(math.Exp2(math.Floor(math.Log2(float64(size)))))
	if size == floor {
		return size
	}
	step := floor / n
	return (size + step - 1) / step * step
}
