package results

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/allocbound"
)

// FuzzRead: whatever the text, reading it fails with the line or not at all, and
// allocates no more than it may. Each metric has a median between its least and
// its greatest value.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"async", "ours", "pytorch"} {
		data, err := os.ReadFile("../../table/testdata/" + name + ".txt")
		require.NoError(f, err)
		f.Add(data)
	}
	for _, text := range []string{
		"", "BenchmarkA-8 1 2 ns/op", "BenchmarkA-99999999999999999999 1 2 ns/op", "BenchmarkA 1 NaN ns/op", "BenchmarkA 1 1e999 ns/op\n", "BenchmarkA 1 1e308 x\nBenchmarkA 1 -1e308 x",
		"--- FAIL: BenchmarkA", "a: b", strings.Repeat("a", 70000), "BenchmarkA 99999999999999999999 1 x", strings.Repeat("BenchmarkA 1 1 x\n", 100),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Results
		var err error
		allocbound.Require(t, 64<<10, 256, len(data), func() {
			r = Results{}
			err = r.read(bytes.NewReader(data))
		})
		if err != nil {
			require.Regexp(t, `^line \d+: `, err.Error())
			return
		}
		for m := range r.values {
			v := r.Find(m)
			require.NotNil(t, v)
			if v.Median == v.Median && v.Min == v.Min && v.Max == v.Max { // no NaN among them
				require.True(t, v.Min <= v.Max, "%v: %v", m, *v)
			}
		}
	})
}
