package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const live = `cpu: Some CPU
BenchmarkLive/blocks=1e3-2 	 1313824	       100.0 ns/op	         1.226 books-%reserved
BenchmarkLive/blocks=1e3-2 	 1313824	       104.0 ns/op	         1.226 books-%reserved
BenchmarkLive/blocks=1e4-2 	  675854	       131.0 ns/op
BenchmarkLive/blocks=1e5-2 	  502598	       163.0 ns/op
BenchmarkLive/blocks=1e6-2 	  202689	       257.0 ns/op
BenchmarkLiveLooks/blocks=1e3-2 	 1313824	        25.0 ns/op
BenchmarkLiveLooks/blocks=1e6-2 	  202689	       155.0 ns/op
`

func TestPlot(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "live.txt"), filepath.Join(dir, "live.svg")
	require.NoError(t, os.WriteFile(in, []byte(live), 0o600))
	require.NoError(t, run([]string{out, in}))
	svg, err := os.ReadFile(out)
	require.NoError(t, err)
	for _, text := range []string{">102.0<", ">131.0<", ">163.0<", ">257.0<", ">1,000,000<", ">live blocks<", ">ns<", ">25.00<", ">155.0<", ">to look at its two cache lines, alone<", ">goal: at most twice the first<"} {
		require.Contains(t, string(svg), text)
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.txt")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.ErrorContains(t, run([]string{"live.svg"}), "usage")
	require.ErrorContains(t, run([]string{filepath.Join(dir, "live.svg"), empty}), "no result of BenchmarkLive")
	require.ErrorIs(t, run([]string{filepath.Join(dir, "live.svg"), filepath.Join(dir, "none")}), os.ErrNotExist)
	require.NoError(t, os.WriteFile(empty, []byte(live), 0o600))
	require.ErrorContains(t, run([]string{filepath.Join(dir, "live.gif"), empty}), "a plot ends in .svg or .png")
}
