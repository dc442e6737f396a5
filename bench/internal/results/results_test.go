package results

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func read(t *testing.T, text string) *Results {
	t.Helper()
	name := filepath.Join(t.TempDir(), "results.txt")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	r, err := ReadFiles(name)
	require.NoError(t, err)
	return r
}

func TestFind(t *testing.T) {
	r := read(t, `goos: linux
cpu: Some CPU @ 2 GHz
BenchmarkHit/size=512-16         	50000000	        22.00 ns/op	         0 B/op
BenchmarkHit/size=512-16         	50000000	        20.00 ns/op	         0 B/op
BenchmarkHit/size=512            	50000000	        30.00 ns/op	         0 B/op
BenchmarkRuler/mutex-pair        	50000000	        14.00 ns/op
PASS
BenchmarkHit/size=512-16         	50000000	        40.00 ns/op	         1 B/op
BenchmarkHit/size=512-16         	50000000	        24.00 ns/op	         1 B/op
`)
	require.Equal(t, "Some CPU @ 2 GHz", r.Setting("cpu"))
	require.Empty(t, r.Setting("goarch"))
	for m, want := range map[Metric]*Value{
		{"Hit/size=512", 16, "ns/op"}:    {23, 20, 40},
		{"Hit/size=512", 1, "ns/op"}:     {30, 30, 30},
		{"Hit/size=512", 0, "ns/op"}:     {23, 20, 40}, // the most processors
		{"Hit/size=512", 0, "B/op"}:      {0.5, 0, 1},
		{"Ruler/mutex-pair", 0, "ns/op"}: {14, 14, 14},
		{"Hit/size=512", 8, "ns/op"}:     nil,
		{"Hit/size=512", 0, "MB/s"}:      nil,
		{"Hit", 0, "ns/op"}:              nil,
	} {
		require.Equal(t, want, r.Find(m), m)
	}
}

func TestOtherLines(t *testing.T) {
	r := read(t, "Benchmarks are run one by one\n\nBenchmarkHit\nBenchmarkHit x 2 ns/op\nBenchmarkHit 2 1.5 ns/op behind\nok  \tpackage\t1.2s\n")
	require.Empty(t, r.values)
	require.Empty(t, r.settings)
}

func TestErrors(t *testing.T) {
	_, err := ReadFiles(filepath.Join(t.TempDir(), "none.txt"))
	require.ErrorIs(t, err, os.ErrNotExist)
	for text, want := range map[string]string{
		"BenchmarkHit 10 many ns/op\n":          `line 1: Hit: strconv.ParseFloat: parsing "many"`,
		"goos: linux\n--- FAIL: BenchmarkHit\n": "line 2: a benchmark failed: --- FAIL: BenchmarkHit",
	} {
		require.ErrorContains(t, (&Results{}).read(strings.NewReader(text)), want)
	}
}
