package bytesize

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

func TestFormat(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", -1023: "-1023 B", 1024: "1 KiB", 1536: "1.5 KiB", -2048: "-2 KiB",
		44 << 20: "44 MiB", 5<<30 + 1<<29: "5.5 GiB", 1234567890: "1.15 GiB", math.MaxInt64: "8 EiB",
	} {
		require.Equal(t, want, Format(n))
	}
}

func TestExact(t *testing.T) {
	for n, want := range map[int64]string{
		1<<53 + 1: "9007199254740993", 1<<62 - 1: "4611686018427387903", (1<<51 + 1) << 10: "2251799813685249K",
		0: "0", 512: "512", 1536: "1536", 2048: "2K", 1<<20 + 512: "1049088", 20 << 20: "20M", 1 << 30: "1G", 1<<30 + 1<<20: "1025M",
	} {
		require.Equal(t, want, Exact(n))
		again, err := Parse(want)
		require.NoError(t, err)
		require.Equal(t, n, again)
	}
}

func TestParse(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "1": 1, "4096": 4096, "512K": 512 << 10, "512k": 512 << 10, "512KB": 512 << 10, "512KiB": 512 << 10, "512kib": 512 << 10,
		"1.5M": 3 << 19, "2G": 2 << 30, "80GiB": 80 << 30, "80 GiB": 80 << 30, "1T": 1 << 40, "7B": 7, "0.25K": 256, "1e3": 1000, "0.0": 0, "0G": 0, "1.9": 1,
		"4611686018427387392": 1<<62 - 512, "9007199254740993": 1<<53 + 1, "4611686018427387903": 1<<62 - 1, "4503599627370495K": 1<<62 - 1024, "1.5T": 3 << 39,
	} {
		got, err := Parse(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"", "K", "MiB", "-1", "-1K", "x", "1X", "1KK", "4E", "1K2", "5BiB", "nan", "NaN", "inf", "-inf", "1e30", "4611686018427387904", "4503599627370496K", "4194304T", "18446744073709551616", "9000000T", "1 2", "0x", "--1", "0.1", "1e-18", "1e-400K", "0.0009K", "-0", "-1e-400"} {
		_, err := Parse(s)
		require.Error(t, err, "%q", s)
	}
}

// FuzzParse: a size that is read is one that can be counted, and Exact writes it
// so that it reads the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"0", "4096", "512MiB", "1.5M", "2G", "80 GiB", "1e3", "9007199254740993", "4611686018427387903", "4611686018427387904", "4194304T",
		"", "K", "-1", "nan", "inf", "1e400", "0x1p10", "1_000", "1e-400", "1 2", "1KK", "\x00", "1\xff", "99999999999999999999G", ".5K", "1iB",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var n int64
		var err error
		testkit.RequireAllocates(t, 4<<10, 4, len(s), func() { n, err = Parse(s) })
		if err != nil {
			require.Zero(t, n)
			require.Less(t, len(err.Error()), 100)
			return
		}
		require.True(t, n >= 0 && n < 1<<62, n)
		again, err := Parse(Exact(n))
		require.NoError(t, err)
		require.Equal(t, n, again)
		if n >= 1<<50 { // Parse does not read PiB
			return
		}
		about, err := Parse(Format(n))
		require.NoError(t, err)
		require.InEpsilon(t, float64(n)+1, float64(about)+1, 0.001)
	})
}
