package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/bombs"
	"github.com/cupool/cupool/snapshot"
)

// Small files make no comparison large.
func TestDiffBombs(t *testing.T) {
	dir := t.TempDir()
	for name, data := range bombs.Snapshots(testkit.Choose(1<<18, 1<<14)) {
		if _, err := snapshot.Read(bytes.NewReader(data)); err != nil {
			continue
		}
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, testkit.Gzip(t, data), 0o600))
		for _, args := range [][]string{{"diff", traces + "torch_default.pickle.gz", file}, {"diff", "-json", file, traces + "torch_default.pickle.gz"}} {
			testkit.RequireAllocates(t, 8<<20, 4<<10, len(data), func() {
				var errs bytes.Buffer
				require.Zero(t, run(t.Context(), args, io.Discard, &errs), &errs)
			})
		}
	}
}

// Of a large file that is neither a snapshot nor a trace little is read.
func TestTopLargeFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "core")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, 256<<20))
	testkit.RequireAllocates(t, 8<<20, 0, 0, func() {
		var errs bytes.Buffer
		require.Equal(t, 1, run(t.Context(), []string{"top", file}, io.Discard, &errs))
		require.Contains(t, errs.String(), "not a memory snapshot")
	})
}

// A label does not reach the terminal as it is.
func TestDiffPrintable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"segments": [{"total_size": 5, "blocks": [{"size": 5, "state": "live", "label": "\u001b[2Ja\u009b"}]}]}`), 0o600))
	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"diff", traces + "torch_default.pickle.gz", file}, &out, &errs), &errs)
	require.Contains(t, out.String(), "\uFFFD[2Ja\uFFFD")
}
