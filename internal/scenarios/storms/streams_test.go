package storms_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// processPages returns the pages that the process has in its address space and
// in memory, or false where the system does not say.
func processPages(t *testing.T) (virtual, resident int64, ok bool) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, 0, false
	}
	fields := strings.Fields(string(text))
	virtual, err = strconv.ParseInt(fields[0], 10, 64)
	require.NoError(t, err)
	resident, err = strconv.ParseInt(fields[1], 10, 64)
	require.NoError(t, err)
	return virtual, resident, true
}

// TestStreamsWithLiveBlocks: a server makes a stream for each request, and a
// block of the request outlives the stream. However many requests there are,
// address space, the allocator's books and the process stay as large as they
// were.
func TestStreamsWithLiveBlocks(t *testing.T) {
	rounds := testkit.Rounds(12_000)
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		for name, tc := range map[string]struct {
			sizes  []int64
			pool   bool // the memory is a private pool's
			behind int  // rounds for which a block outlives its stream
		}{
			"small":               {sizes: []int64{4096}, behind: 1},
			"small of a pool":     {sizes: []int64{4096}, pool: true, behind: 1},
			"large":               {sizes: []int64{3 << 20}, behind: 1},
			"both, for 10 others": {sizes: []int64{4096, 3 << 20}, behind: 10},
		} {
			t.Run(backing.String()+", "+name, func(t *testing.T) {
				host, err := cupool.OpenHost(cupool.HostConfig{Capacity: 16 << 30})
				require.NoError(t, err)
				defer func() { require.NoError(t, host.Close()) }()
				d := conformance.NewFailing(host)
				c, err := cupool.New(cupool.Config{Driver: d, Backing: backing})
				if errors.Is(err, cupool.ErrNotSupported) {
					t.Skip(err)
				}
				require.NoError(t, err)
				a := c
				if tc.pool {
					a = pooltest.NewPrivate(t, c, cupool.PoolConfig{})
				}
				live := make([]cupool.Block, tc.behind*len(tc.sizes))
				serve := func(from, to int) {
					for i := from; i < to; i++ {
						s := pooltest.NewStream(t, c)
						for _, size := range tc.sizes {
							b := pooltest.Alloc(t, a, size, s)
							require.NoError(t, a.Free(live[0]), "round %d", i)
							live = append(live[1:], b)
						}
						require.NoError(t, s.Close(), "round %d", i)
					}
				}
				books := func() int64 { return c.Stats().MetadataBytes + a.Stats().MetadataBytes }
				serve(0, 200)
				reserved, ranges, meta, heap := a.Stats().All.ReservedBytes.Current, d.Ranges(), books(), pooltest.HeapInUse()
				virtual, resident, known := processPages(t)
				serve(200, rounds)
				require.LessOrEqual(t, a.Stats().All.ReservedBytes.Current, reserved)
				require.LessOrEqual(t, d.Ranges(), ranges+4, "ranges of addresses")
				// A late device makes the heap spread over more of its range now and
				// then. A leaf of the address map left behind every 50 rounds is more.
				require.Less(t, books()-meta, int64(4<<20), "bytes of books")
				require.Less(t, pooltest.HeapInUse()-heap, int64(8<<20), "bytes of Go's heap")
				if v, r, _ := processPages(t); known {
					page := int64(os.Getpagesize())
					require.Less(t, (v-virtual)*page, int64(256<<30), "bytes of address space")
					require.Less(t, (r-resident)*page, int64(64<<20), "bytes in memory")
				}
				for _, b := range live {
					require.NoError(t, a.Free(b))
				}
				require.NoError(t, a.Check())
				require.NoError(t, c.Close())
				require.Zero(t, d.Held())
				require.Zero(t, d.Ranges())
			})
		}
	}
}
