package cupool_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// heapInUse returns the bytes that Go's heap holds, without garbage.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// serve is what a server does on a stream of its own: memory of the allocator
// and of a pool, shared with the default stream in both directions.
func serve(t require.TestingT, c, p *cupool.Pool) {
	s, err := c.NewStream()
	require.NoError(t, err)
	shared, err := c.Alloc(1<<20, nil)
	require.NoError(t, err)
	require.NoError(t, c.RecordStream(shared, s))
	for _, a := range []*cupool.Pool{c, p} {
		for range 3 { // the size gets a home
			b, err := a.Alloc(4096, s)
			require.NoError(t, err)
			require.NoError(t, a.Free(b))
		}
		b, err := a.Alloc(3<<20, s)
		require.NoError(t, err)
		require.NoError(t, a.FreeOn(b, c.DefaultStream()))
	}
	require.NoError(t, c.Free(shared))
	require.NoError(t, c.DefaultStream().WaitStream(s))
	require.NoError(t, s.WaitStream(c.DefaultStream()))
	require.NoError(t, s.Close())
	_, err = c.Alloc(4096, s)
	require.ErrorIs(t, err, cupool.ErrClosed)
}

// A server that makes a stream for each of 10,000 requests has a constant
// number of them, in constant memory.
func TestStreamsWithoutEnd(t *testing.T) {
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		p := newPrivate(t, c, cupool.PoolConfig{})
		rounds := func(n int) {
			for range n {
				serve(t, c, p)
			}
		}
		rounds(100)
		books := func() int64 { return c.Stats().MetadataBytes + p.Stats().MetadataBytes }
		heap, meta := heapInUse(), books()
		rounds(5_000)
		require.LessOrEqual(t, c.Slots(), 20)
		require.LessOrEqual(t, p.Slots(), 20)
		require.Less(t, heapInUse()-heap, int64(8<<20), "bytes more than after 100 streams")
		require.Less(t, books()-meta, int64(1<<20))
		require.NoError(t, c.Check())
		require.NoError(t, p.Check())
	})
}

// Streams that take the slots of closed ones are not taken for them.
func TestSlotOfClosedStream(t *testing.T) {
	for name, tc := range map[string]struct {
		first, then, want string
		slots             int // a block that names the old stream keeps its slot
	}{
		"a clock that knew the old one": {
			"a=2M use:a@1 wait:0<1 close:1", // the default stream is ordered behind all of stream 1
			"busy:2 use:a@2 free:a process", "0 large: [Pending 2M][Free 18M]", 3},
		"an event of the old one": {
			"a=2M busy:1 use:a@1 mark:e@1 idle:1 close:1",
			"busy:2 use:a@2 free:a wait:0<e process", "0 large: [Pending 2M][Free 18M]", 3},
		"a block that the old one used": {
			"a=2M use:a@1 close:1",
			"busy:2 free:a process", "0 large: [Free 20M]", 3},
		"an event of the old one, whose slot the new one has": {
			"a=2M busy:1 mark:e@1 idle:1 close:1",
			"busy:2 use:a@2 free:a wait:0<e process", "0 large: [Pending 2M][Free 18M]", 2},
		"a clock that knew the old one, whose slot the new one has": {
			"a=2M b=2M use:b@1 wait:0<1 close:1 free:b",
			"busy:2 use:a@2 free:a process", "0 large: [Pending 2M][Free 18M]", 2},
		"what is known of the old one, whose slot the new one has": {
			"a=2M b=2M use:b@1 mark:e@1 mark:f@1 mark:g@1 wait:0<1 close:1 free:b",
			"busy:2 use:a@2 free:a wait:0<2", "0 large: [Free 20M]", 2},
		"a block that both used": {
			"a=2M use:a@1 close:1",
			"busy:2 use:a@2 free:a process", "0 large: [Pending 2M][Free 18M]", 3},
		"a block of the old one": {
			"a=2M b=2M@1 close:1 free:a",
			"c=2M@2 free:b free:c", "2 large: [Free 20M]; 0 large: [Free 20M]", 2},
	} {
		t.Run(name, func(t *testing.T) {
			c, d := pooltest.New(t, 1<<30)
			x := pooltest.NewScript(t, c, d).Run(tc.first)
			x.Stream("2")
			require.Equal(t, tc.slots, c.Slots())
			require.Equal(t, tc.want, x.Run(tc.then).Layout())
			d.Idle(x.Stream("2"))
		})
	}
}

// What a closed stream left stays until another stream has taken it.
func TestMemoryOfClosedStream(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=40M@1 free:a close:1")
	x.Stream("2")
	require.Equal(t, 2, c.Slots())
	require.Equal(t, 3, c.Heaps())
	x.Run("b=40M@2")
	require.EqualValues(t, 1, c.Stats().DriverAllocs)
	require.Equal(t, 2, c.Heaps())
	x.Stream("3")
	x.Run("c=2M@3")
	require.Equal(t, 3, c.Heaps())
	require.Equal(t, "2 large: [Live 40M]; 3 large: [Live 2M][Free 18M]", x.Layout())
}

// Goroutines that make and close streams, while others read the books.
func TestStreamsParallel(t *testing.T) {
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		p := newPrivate(t, c, cupool.PoolConfig{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 50 {
					serve(t, c, p)
				}
			})
		}
		wg.Go(func() {
			for range 50 {
				c.Stats()
				_, err := c.Trim(0)
				must(0, err)
				must(0, p.Check())
				must(0, c.Check())
			}
		})
		wg.Wait()
		require.NoError(t, c.Check())
		require.NoError(t, p.Check())
		require.LessOrEqual(t, c.Slots(), 50)
	})
}
