package replay

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/trace"
)

// FuzzRun replays whatever trace reads: over segments, virtual memory and a plan,
// on a device that is too small for some of it. A replay never fails, and keeps
// the allocator's books in order.
func FuzzRun(f *testing.F) {
	names, err := filepath.Glob("../../../testdata/traces/*.trace")
	require.NoError(f, err)
	for _, name := range names {
		data, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(data)
	}
	for _, text := range []string{
		"#\n", "a 0 0 0\n", "a 0 1125899906842624 0\na 1 1125899906842624 9\nr 0 9\nf 0\nf 1\n", "e 0 1\nw 0 0\na 1 67108864 1\nr 1 0\nf 1\n",
		"a 0 67108863 0\nf 0\na 0 67108865 0\nf 0\na 0 33554433 0\na 1 33554433 1\n", "a 5 1 5\nr 5 5\nr 5 6\nw 0 0\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tr, err := trace.Read(bytes.NewReader(data), "x")
		if err != nil || len(tr.Events) > 100 || len(tr.Streams) > 20 {
			t.Skip()
		}
		const capacity = 64 << 20
		for _, backing := range []string{"segments", "vmm", "planned"} {
			o := Options{Capacity: capacity, Backing: backing, Samples: 10}
			r, err := Run(context.Background(), tr, o)
			require.NoError(t, err, backing)
			require.Equal(t, len(tr.Events), r.Events)
			require.Equal(t, tr.PeakRequested, r.PeakRequestedBytes)
			require.LessOrEqual(t, r.PeakReservedBytes, int64(capacity))
			require.LessOrEqual(t, r.FailedAllocs, int64(tr.Blocks))
			require.NoError(t, After(context.Background(), tr, o, len(tr.Events), (*cupool.Pool).Check))
		}
		m := TorchModel(tr, capacity)
		require.Equal(t, m, TorchModel(tr, capacity))
	})
}
