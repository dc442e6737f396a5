package sizeclass

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

func TestParseDivisions(t *testing.T) {
	same := SameDivisions
	for text, want := range map[string]Divisions{
		"none":                     {},
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
		got, err := ParseDivisions(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := ParseDivisions(got.String())
		require.NoError(t, err, got.String())
		require.Equal(t, got.String(), again.String())
	}
	for text, reason := range map[string]string{
		"": "power of two", "0": "power of two", "3": "power of two", "-2": "power of two", "x": "power of two", "1e3": "power of two",
		"2097152": "power of two", "[": "end with ]", "[4": "end with ]", "[]": "SIZE:DIVISIONS", "[4]": "SIZE:DIVISIONS", "[4:3]": "SIZE:DIVISIONS",
		"[3:4]": "power of two from 1", "[65536:4]": "power of two from 1", "[0:4]": "power of two from 1", "[-1:4]": "power of two from 1",
		"[4:2,2:2]": "ascend", "[4:2,4:2]": "ascend", "[>:2,4:2]": "ascend", "[>:2,>:4]": "ascend", "[1:2097152]": "SIZE:DIVISIONS",
	} {
		_, err := ParseDivisions(text)
		require.ErrorContains(t, err, reason, text)
	}
	require.Equal(t, "-1", SameDivisions(-1).String(), "an error names what is wrong")
}

// The formula of PyTorch's round_size.
func TestClassesRoundAsPyTorch(t *testing.T) {
	r := testkit.Rand(t)
	for _, text := range []string{"1", "4", "64", "[1:2,2:4,>:8]", "[64:8,128:2,256:4,512:2,1024:4,>:8]"} {
		d, err := ParseDivisions(text)
		require.NoError(t, err)
		c, changes := NewClasses(d, Quantum, false)
		require.Equal(t, text != "1", changes)
		for range 10_000 {
			size := 1 + r.Int64N(1<<(1+r.IntN(40)))
			require.Equal(t, torchRound(size, d), c.Round(Round(size)), "%s: %d bytes", text, size)
		}
	}
}

func TestClassesWithUnitAndPowers(t *testing.T) {
	c, changes := NewClasses(Divisions{}, 4096, false)
	require.True(t, changes)
	require.EqualValues(t, 8192, c.Round(4608))
	c, changes = NewClasses(Divisions{}, Quantum, true)
	require.True(t, changes)
	require.EqualValues(t, 2<<20, c.Round(1<<20+Quantum))
	_, changes = NewClasses(Divisions{}, Quantum, false)
	require.False(t, changes)
}

// torchRound is PyTorch's round_size, with its floating point.
func torchRound(size int64, d Divisions) int64 {
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

// FuzzParseDivisions: what is read is valid, and what is printed of it reads as
// something that rounds the same.
func FuzzParseDivisions(f *testing.F) {
	for _, s := range []string{
		"", "8", " 4 ", "[>:2]", "[256:2]", "[1:8,4:2]", "[ 2:8, >:4 ]", "[32768:16]", "[256:1,512:2,1024:4,>:8]", "[", "[]", "[4:3]",
		"[65536:4]", "[4:2,2:2]", "[>:2,>:4]", "[1:1048576]", "[1:2097152]", "99999999999999999999", "[99999999999999999999:1]", "[1:1,,]", "[1:1,>:1]\x00",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var d Divisions
		var err error
		testkit.RequireAllocates(t, 8<<10, 64, len(s), func() { d, err = ParseDivisions(s) })
		if err != nil {
			require.Zero(t, d)
			return
		}
		require.True(t, d.Valid())
		again, err := ParseDivisions(d.String())
		require.NoError(t, err)
		require.Equal(t, d.String(), again.String())
		want, _ := NewClasses(d, Quantum, false)
		got, _ := NewClasses(again, Quantum, false)
		require.Equal(t, want, got)
	})
}
