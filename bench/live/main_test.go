package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot/plotter"
)

const results = `cpu: Some CPU
BenchmarkLive/blocks=1e3-2 	 1313824	       104.0 ns/op	         1.226 books-%reserved
BenchmarkLive/blocks=1e3-2 	 1313824	       100.0 ns/op	         1.226 books-%reserved
BenchmarkLive/blocks=1e3-2 	 1313824	       101.0 ns/op	         1.226 books-%reserved
BenchmarkLive/blocks=1e6-2 	  202689	       257.0 ns/op
BenchmarkLiveLooks/blocks=1e3-2 	 1313824	        25.0 ns/op
PASS
`

func TestRead(t *testing.T) {
	steps, looks, err := read(strings.NewReader(results))
	require.NoError(t, err)
	require.Equal(t, plotter.XYs{{X: 1e3, Y: 101}, {X: 1e6, Y: 257}}, steps)
	require.Equal(t, plotter.XYs{{X: 1e3, Y: 25}}, looks)
}

func TestPicture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "live.svg")
	require.NoError(t, run([]string{file}, strings.NewReader(results)))
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, text := range []string{">live blocks<", ">ns<", ">a step<", ">1000<", ">to look at its two cache lines, alone<"} {
		require.Contains(t, string(svg), text)
	}
	require.ErrorContains(t, run([]string{file}, strings.NewReader("PASS\n")), "no result of BenchmarkLive")
	require.Error(t, run([]string{filepath.Join(t.TempDir(), "live.gif")}, strings.NewReader(results)))
}
