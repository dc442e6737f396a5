package storms_test

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// Tests of programs that make and close streams and pools for ever.

// timesOf returns how often a test repeats what it does: n in the long form, fewer
// in the quick one, or what the environment has as CUPOOL_ROUNDS.
func timesOf(t *testing.T, n int) int {
	t.Helper()
	v := os.Getenv("CUPOOL_ROUNDS")
	if v == "" {
		return testkit.Rounds(n)
	}
	n, err := strconv.Atoi(v)
	require.NoError(t, err)
	return n
}

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
// were. CUPOOL_ROUNDS=1000000 shows a million streams.
func TestStreamsWithLiveBlocks(t *testing.T) {
	rounds := timesOf(t, 12_000)
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
						s, err := c.NewStream()
						require.NoError(t, err, "round %d", i)
						for _, size := range tc.sizes {
							b, err := a.Alloc(size, s)
							require.NoError(t, err, "round %d", i)
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

// graveDevice remembers which streams were destroyed, in what order, and is told
// when a test closes a pool.
type graveDevice struct {
	cupool.Driver
	mu        sync.Mutex
	destroyed map[cupool.StreamHandle]bool
	closing   map[cupool.StreamHandle]bool // destroyed since the pool is being closed
	stale     int                          // waits for streams that were destroyed before that
	late      int                          // waits for others that were destroyed
}

func (d *graveDevice) DestroyStream(s cupool.StreamHandle) error {
	d.mu.Lock()
	d.destroyed[s], d.closing[s] = true, true
	d.mu.Unlock()
	return d.Driver.DestroyStream(s)
}

func (d *graveDevice) SyncStream(s cupool.StreamHandle) error {
	d.mu.Lock()
	switch {
	case d.closing[s]:
		d.late++
	case d.destroyed[s]:
		d.stale++
	}
	d.mu.Unlock()
	return d.Driver.SyncStream(s)
}

// beginClosing notes that a pool is about to be closed.
func (d *graveDevice) beginClosing() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.closing)
}

// TestPoolsBesideStreams: pools that are made, used and closed while streams
// come and go never wait for a stream that is destroyed: not for one that was
// destroyed when the pool met it, whose place another stream had, and not for
// one that is destroyed while the pool is being closed.
func TestPoolsBesideStreams(t *testing.T) {
	const standing = 8 // places of streams that come and go, which a pool meets at once
	rounds := timesOf(t, 4_000)
	d := &graveDevice{Driver: simdev.New(simdev.Config{}), destroyed: map[cupool.StreamHandle]bool{}, closing: map[cupool.StreamHandle]bool{}}
	c, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	var coming []*cupool.Stream
	for range standing {
		s, err := c.NewStream()
		require.NoError(t, err)
		coming = append(coming, s)
	}
	last, err := c.NewStream() // of the highest place: a pool that meets it meets all below
	require.NoError(t, err)
	for _, s := range coming {
		require.NoError(t, s.Close())
	}
	var over atomic.Bool
	var wg sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !over.Load() {
				s, err := c.NewStream()
				if err == nil {
					err = s.Close()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	failed := 0
	for range rounds {
		p, err := c.NewPool(cupool.PoolConfig{})
		require.NoError(t, err)
		b, err := p.Alloc(512, last)
		if err == nil {
			err = p.Free(b)
		}
		if err != nil {
			failed++
		}
		d.beginClosing()
		if p.Close() != nil {
			failed++
		}
	}
	over.Store(true)
	wg.Wait()
	require.Zero(t, d.stale, "waits for a stream that was destroyed before the pool was closed, of %d rounds", rounds)
	require.Zero(t, d.late, "waits for a stream that was destroyed while the pool was being closed, of %d rounds", rounds)
	require.Zero(t, failed, "errors in %d rounds", rounds)
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}
