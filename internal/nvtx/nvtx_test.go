package nvtx_test

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/nvtx"
	"github.com/cupool/cupool/internal/testkit/nvtxtest"
)

func TestRanges(t *testing.T) {
	long := strings.Repeat("x", 300)
	got, ok := nvtxtest.Record(t, func(*testing.T) {
		outer := nvtx.Start("outer", 1<<40)
		inner := nvtx.Start("inner ä", -1)
		outer.End() // ranges need not nest
		inner.End()
		nvtx.Start(long, 0).End()
		nvtx.Start("", 0).End()
		nvtx.Range(0).End()
	})
	if !ok {
		return
	}
	require.Equal(t, []nvtxtest.Event{
		{Domain: "cupool", Name: "outer", Bytes: 1 << 40},
		{Domain: "cupool", Name: "inner ä", Bytes: -1},
		{End: true, Domain: "cupool", Name: "outer"},
		{End: true, Domain: "cupool", Name: "inner ä"},
		{Domain: "cupool", Name: long[:255]},
		{End: true, Domain: "cupool", Name: long[:255]},
		{Domain: "cupool"},
		{End: true, Domain: "cupool"},
	}, got)
}

func TestRangesInGoroutines(t *testing.T) {
	got, ok := nvtxtest.Record(t, func(*testing.T) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 100 {
					nvtx.Start("g", 1).End()
				}
			})
		}
		wg.Wait()
	})
	if ok {
		require.Len(t, got, 1600)
	}
}

// A library that is missing, that is no tool, or that does not want ranges is as
// none.
func TestNoTool(t *testing.T) {
	const inside = "NVTX_TEST_NO_TOOL"
	require.Zero(t, nvtx.Start("a", 1))
	if os.Getenv(inside) != "" {
		return
	}
	for _, library := range []string{"", "/no/such/library.so", "libc.so.6", nvtxtest.Build(t)} {
		nvtxtest.Start(t, "^TestNoTool$", library, inside+"=1", "NVTX_RECORD=/no/such/directory/file")
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		nvtx.Start("a", 1).End()
	}
}
