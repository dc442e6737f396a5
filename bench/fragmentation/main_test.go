package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	t.Chdir("../..")
	var out strings.Builder
	picture := filepath.Join(t.TempDir(), "ratios.svg")
	require.NoError(t, run([]string{"prefetch"}, picture, &out))
	drawn, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Contains(t, string(drawn), "prefetch")
	lines := strings.Split(out.String(), "\n")
	require.Len(t, lines, 5)
	require.Regexp(t, `^\| prefetch \| 19347 \| 1\.37 GiB \| 2\.121 \| 1\.097( \| 1\.\d{3}){3}( \| \d+\.\d){3} \|$`, lines[2])
	require.Regexp(t, `^\| geometric mean \| \| \| 2\.121 \| 1\.097( \| 1\.\d{3}){3} \| \| \| \|$`, lines[3])
	for _, row := range lines[:4] {
		require.Equal(t, 12, strings.Count(row, "|"), row)
	}

	require.ErrorContains(t, run([]string{"prefetch", "x"}, "", &out), `has not all of ["prefetch" "x"]`)
}
