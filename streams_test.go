package cupool_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

func TestStreamPools(t *testing.T) {
	pooltest.RunScripts(t, map[string][2]string{
		"a segment each":               {"a=2M b=2M@1", "0 large: [Live 2M][Free 18M]; 1 large: [Live 2M][Free 18M]"},
		"what one frees stays its own": {"a=2M b=2M free:a c=2M@1", "0 large: [Free 2M][Live 2M][Free 16M]; 1 large: [Live 2M][Free 18M]"},

		// RecordStream.
		"without it, free at once":       {"a=2M busy:1 free:a b=2M", "0 large: [Live 2M][Free 18M]"},
		"with it, pending":               {"a=2M busy:1 use:a@1 free:a", "0 large: [Pending 2M][Free 18M]"},
		"and not handed out":             {"a=2M busy:1 use:a@1 free:a b=2M", "0 large: [Pending 2M][Live 2M][Free 16M]"},
		"until the stream is done":       {"a=2M busy:1 use:a@1 free:a process idle:1 process", "0 large: [Free 20M]"},
		"which a miss finds":             {"a=20M busy:1 use:a@1 free:a idle:1 b=20M", "0 large: [Live 20M]"},
		"its own stream does not matter": {"a=2M busy:0 use:a@0 free:a", "0 large: [Free 20M]"},
		"twice is once":                  {"a=2M busy:1 use:a@1 use:a@1 free:a process idle:1 process", "0 large: [Free 20M]"},
		"all streams must be done":       {"a=2M busy:1 busy:2 use:a@1 use:a@2 free:a process idle:1 process", "0 large: [Pending 2M][Free 18M]"},
		"in any order":                   {"a=2M busy:1 busy:2 use:a@1 use:a@2 free:a process idle:2 process idle:1 process", "0 large: [Free 20M]"},
		"a new life has no users":        {"a=2M use:a@1 free:a process a=2M busy:1 free:a", "0 large: [Free 20M]"},
		"later work does not matter":     {"a=2M busy:1 use:a@1 free:a busy:1 step:1 process", "0 large: [Free 20M]"},

		// FreeOn.
		"free on":           {"a=2M busy:1 free:a@1", "0 large: [Pending 2M][Free 18M]"},
		"free on, and done": {"a=2M busy:1 free:a@1 idle:1 process", "0 large: [Free 20M]"},
		"free on its own":   {"a=2M busy:0 free:a@0", "0 large: [Free 20M]"},

		// Sync and Close.
		"sync frees":                 {"a=2M busy:1 use:a@1 free:a sync:1", "0 large: [Free 20M]"},
		"close frees":                {"a=2M busy:1 use:a@1 free:a close:1", "0 large: [Free 20M]"},
		"a closed stream is done":    {"a=2M busy:1 use:a@1 close:1 free:a", "0 large: [Free 20M]"},
		"recording it adds nothing":  {"a=2M busy:1 close:1 use:a@1 free:a", "0 large: [Free 20M]"},
		"its cache goes over":        {"a=2M@1 b=3M@1 free:a close:1 c=2M", "0 large: [Live 2M][Live 3M][Free 15M]"},
		"its live blocks go over":    {"a=2M@1 close:1 free:a b=3M", "0 large: [Live 3M][Free 17M]"},
		"its pending blocks go over": {"a=2M@1 busy:2 use:a@2 free:a close:1", "0 large: [Pending 2M][Free 18M]"},
		"and come free there":        {"a=2M@1 busy:2 use:a@2 free:a close:1 idle:2 process b=20M", "0 large: [Live 20M]"},
		"with all their users": {
			"a=2M@1 busy:2 busy:3 use:a@2 use:a@3 close:1 free:a idle:2 process", "0 large: [Pending 2M][Free 18M]",
		},
		"small ones too": {"a=512@1 b=2M@1 free:a close:1", "0 small: [Free 2M]; 0 large: [Live 2M][Free 18M]"},
	}, 1<<30)
}

func TestStreamCloseWithMagazines(t *testing.T) {
	pooltest.RunScripts(t, map[string][2]string{
		"cached blocks stay":     {"a=1M@1 free:a a=1M@1 free:a a=1M@1 free:a", "1 small: [Cached 1M][Free 1M]"},
		"until it is closed":     {"a=1M@1 free:a a=1M@1 free:a a=1M@1 free:a close:1", "1 small: [Free 2M]"},
		"live ones stay":         {"a=1M@1 free:a a=1M@1 free:a a=1M@1 close:1", "0 small: [Live 1M][Free 1M]"},
		"and are freed":          {"a=1M@1 free:a a=1M@1 free:a a=1M@1 close:1 free:a", "0 small: [Cached 1M][Free 1M]"},
		"recorded ones are slow": {"a=1M free:a a=1M free:a a=1M busy:1 use:a@1 free:a", "0 small: [Pending 1M][Free 1M]"},
	}, 1<<30, pooltest.WithMagazines)
}

func TestStreamCloseErrors(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	require.ErrorIs(t, c.DefaultStream().Close(), cupool.ErrNotSupported)

	s, err := c.NewStream()
	require.NoError(t, err)
	b, err := c.Alloc(512, s)
	require.NoError(t, err)
	d.Fail("SyncStream", errors.New("no luck"))
	require.ErrorContains(t, s.Close(), "no luck")
	d.Fail("SyncStream", nil)
	_, err = c.Alloc(512, s)
	require.NoError(t, err, "a Close that failed changed nothing")

	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Close(), cupool.ErrClosed)
	_, err = c.Alloc(512, s)
	require.ErrorIs(t, err, cupool.ErrClosed)
	require.NoError(t, c.Free(b))
	require.EqualValues(t, 1, d.Count("DestroyStream"))
	require.EqualValues(t, 1, c.Stats().Streams)
	require.NoError(t, c.Check())
}

// A closed stream's magazines must not serve blocks that went over.
func TestClosedStreamServesNothing(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	x := pooltest.NewScript(t, c, d)
	x.Run("a=1M@1 free:a a=1M@1 free:a a=1M@1 b=1M@1 close:1")
	for range 3 {
		x.Run("c=1M free:c d=1M free:d")
	}
	x.Run("free:a free:b e=1M free:e e=1M free:e")
	_, err := c.Alloc(1<<20, x.Stream("1"))
	require.ErrorIs(t, err, cupool.ErrClosed)
	require.NoError(t, c.Check())
}

// ownerDriver can tell its own streams.
type ownerDriver struct {
	*pooltest.Driver
	err error
}

func (d ownerDriver) OwnsStream(cupool.StreamHandle) error { return d.err }

// TestAdoptRefused: a stream is foreign where the device says so. Another failure is itself, and a
// device that is lost by it stays so.
func TestAdoptRefused(t *testing.T) {
	for _, why := range []error{cupool.ErrForeignStream, cupool.ErrDeviceLost, errors.New("no luck")} {
		d := ownerDriver{pooltest.NewDriver(1 << 30), fmt.Errorf("of context 2: %w", why)}
		c := pooltest.Open(t, cupool.Config{Driver: d})
		_, err := c.AdoptStream(7)
		require.ErrorIs(t, err, d.err)
		require.Equal(t, why == cupool.ErrForeignStream, errors.Is(err, cupool.ErrForeignStream), why)
		require.Equal(t, why == cupool.ErrDeviceLost, c.Err() != nil, why)
	}
}

func TestStreamWork(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	s := c.DefaultStream()
	for name, submit := range map[string]func() error{
		"Copy":       func() error { return s.Copy(1, 2, 3) },
		"CopyIn":     func() error { return s.CopyIn(1, nil) },
		"CopyOut":    func() error { return s.CopyOut(nil, 1) },
		"Memset":     func() error { return s.Memset(1, 2, 3) },
		"SyncStream": s.Sync,
	} {
		before := d.Count(name)
		require.NoError(t, submit())
		require.Equal(t, before+1, d.Count(name), name)
		d.Fail(name, errors.New("no "+name))
		require.ErrorContains(t, submit(), "no "+name)
		d.Fail(name, nil)
	}
	require.ErrorIs(t, s.Launch(func() {}), cupool.ErrNotSupported, "this device runs no Go functions")
}

// A device that is lost ends everything, and says so.
func TestDeviceLost(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	b := pooltest.Alloc(t, c, 512, nil)
	d.Fail("Memset", errors.Join(cupool.ErrDeviceLost, errors.New("illegal address")))
	require.ErrorIs(t, c.DefaultStream().Memset(b.Ptr(), 0, 512), cupool.ErrDeviceLost)
	_, err := c.Alloc(512, nil)
	require.ErrorIs(t, err, cupool.ErrDeviceLost)
	require.ErrorContains(t, err, "illegal address")
	require.NoError(t, c.Free(b), "the books still work")
	require.NoError(t, c.Check())
}

// A lost device serves nothing any more, also not from the magazines.
func TestNothingServedByLostDevice(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	for range 10 { // the size gets a home
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 4096, nil)))
	}
	b := pooltest.Alloc(t, c, 4096, nil)
	require.NoError(t, c.Free(b))
	d.Fail("Memset", cupool.ErrDeviceLost)
	require.ErrorIs(t, c.DefaultStream().Memset(b.Ptr(), 0, 1), cupool.ErrDeviceLost)
	_, err := c.Alloc(4096, nil)
	require.ErrorIs(t, err, cupool.ErrDeviceLost)
}

// While one stream waits for the device, others allocate and free: each has a
// lock of its own.
func TestStreamLocks(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	busy := pooltest.NewStream(t, c)
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 2*mib, nil)))
	asked := 0
	d.Hook = func(call string) {
		if call != "MemAlloc" {
			return
		}
		asked++
		done := make(chan error, 1)
		go func() {
			b, err := c.Alloc(2*mib, nil)
			done <- errors.Join(err, c.Free(b))
		}()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(testkit.Patience):
			t.Error("it waits for the lock of the stream that grows")
		}
	}
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 30*mib, busy)))
	require.Equal(t, 1, asked)
}

// TestClosingStreamLendsNothing: what a stream holds serves no other before the
// stream's work is done, while Close waits for that.
func TestClosingStreamLendsNothing(t *testing.T) {
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) { closingStreamLendsNothing(t, c, false) })
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) { closingStreamLendsNothing(t, c, true) })
}

// closingStreamLendsNothing has a stream with a live block, if wanted, so that its
// memory goes to the default stream.
func closingStreamLendsNothing(t *testing.T, c *cupool.Pool, live bool) {
	s := pooltest.NewStream(t, c)
	b := pooltest.Alloc(t, c, 30<<20, s)
	if live {
		l := pooltest.Alloc(t, c, 4096, s)
		defer func() { require.NoError(t, c.Free(l)) }()
	}
	g := pooltest.HoldStream(t, s)
	defer g.Open()
	require.NoError(t, s.Memset(b.Ptr(), 1, b.Size()))
	require.NoError(t, c.Free(b))
	closed := pooltest.Start(s.Close)
	early, err := pooltest.Returns(closed)
	require.False(t, early, "%v", err)
	x := pooltest.Alloc(t, c, 30<<20, nil)
	require.NotEqual(t, b.Ptr(), x.Ptr(), "the memory that the stream works on")
	reserved := c.Stats().All.ReservedBytes.Current
	require.GreaterOrEqual(t, reserved, int64(60<<20))
	g.Open()
	require.NoError(t, <-closed)
	y := pooltest.Alloc(t, c, 30<<20, nil)
	require.Equal(t, reserved, c.Stats().All.ReservedBytes.Current, "it serves when the work is done")
	require.NoError(t, errors.Join(c.Free(x), c.Free(y)))
}

// makingHook is a device that calls a function before it makes an event.
type makingHook struct {
	*pooltest.Driver
	making func()
}

func (d *makingHook) NewEvent() (cupool.EventHandle, error) {
	if f := d.making; f != nil {
		d.making = nil
		f()
	}
	return d.Driver.NewEvent()
}

// TestEventsOfClosedStream: calls that record events on a stream while it is closed
// and another takes its place and its handle say nothing of the other's work.
func TestEventsOfClosedStream(t *testing.T) {
	d := &makingHook{Driver: pooltest.NewDriver(1 << 30)}
	d.Reuse = true
	c := pooltest.Open(t, cupool.Config{Driver: d, MagazineBytes: -1})
	s := pooltest.NewStream(t, c)
	record := func(events chan *cupool.Event) func() error {
		return func() error {
			e, err := s.Record()
			if err == nil {
				events <- e
			}
			return err
		}
	}
	events := make(chan *cupool.Event, 2)
	var u *cupool.Stream
	var second, closed <-chan error
	d.making = func() {
		second = pooltest.Start(record(events))
		time.Sleep(pooltest.Patience) // until it waits for its event, too
		closed = pooltest.Start(s.Close)
		if early, err := pooltest.Returns(closed); early {
			require.NoError(t, err)
			closed = pooltest.Start(func() error { return nil })
			u = pooltest.NewStream(t, c)
		}
	}
	require.NoError(t, pooltest.Ignore(record(events)(), cupool.ErrClosed))
	require.NoError(t, pooltest.Ignore(<-second, cupool.ErrClosed))
	require.NoError(t, <-closed)
	if u == nil {
		u = pooltest.NewStream(t, c)
	}
	x := pooltest.Alloc(t, c, 4096, nil)
	d.Busy(u)
	require.NoError(t, c.FreeOn(x, u))
	close(events)
	for e := range events {
		require.NoError(t, pooltest.Ignore(c.DefaultStream().Wait(e), cupool.ErrClosed))
	}
	require.EqualValues(t, 1, c.Stats().BlocksPending, "the stream of the same place is at work")
	d.Idle(u)
	_, err := c.ProcessDeferred()
	require.NoError(t, err)
	require.Zero(t, c.Stats().BlocksPending)
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// TestSlotWhileStreamCloses: another stream may take the place of one that is being
// closed as soon as the device destroys that. What the closed stream left serves it.
func TestSlotWhileStreamCloses(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	s := pooltest.NewStream(t, c)
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 40<<20, s)))
	var u *cupool.Stream
	d.Hook = func(call string) {
		if call == "DestroyStream" && u == nil {
			<-pooltest.Start(func() (err error) { u, err = c.NewStream(); return err })
		}
	}
	require.NoError(t, s.Close())
	require.NotNil(t, u)
	require.Equal(t, 2, c.Slots())
	b := pooltest.Alloc(t, c, 40<<20, u)
	require.EqualValues(t, 1, c.Stats().DriverAllocs)
	require.NoError(t, c.Free(b))
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// TestHeapsAreLockedInOrder: a call that needs the heaps of two streams does not
// hold one while it waits for the other, unless that comes later.
func TestHeapsAreLockedInOrder(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30)
	first, second := c.DefaultStream(), pooltest.NewStream(t, c)
	for _, order := range [][2]*cupool.Stream{{first, second}, {second, first}} {
		unlock := c.LockHeap(first)
		done := pooltest.Start(func() error {
			c.LockBoth(order[0], order[1])()
			return nil
		})
		early, _ := pooltest.Returns(done)
		require.False(t, early, "the first is locked")
		require.True(t, c.HeapIsFree(second))
		unlock()
		require.NoError(t, <-done)
		require.True(t, c.HeapIsFree(first) && c.HeapIsFree(second))
	}
	require.NoError(t, c.Close())
}

// serve is what a server does on a stream of its own: memory of the allocator
// and of a pool, shared with the default stream in both directions.
func serve(t *testing.T, c, p *cupool.Pool) {
	s := pooltest.NewStream(t, c)
	shared := pooltest.Alloc(t, c, 1<<20, nil)
	require.NoError(t, c.RecordStream(shared, s))
	for _, a := range []*cupool.Pool{c, p} {
		for range 3 { // the size gets a home
			b := pooltest.Alloc(t, a, 4096, s)
			require.NoError(t, a.Free(b))
		}
		b := pooltest.Alloc(t, a, 3<<20, s)
		require.NoError(t, a.FreeOn(b, c.DefaultStream()))
	}
	require.NoError(t, c.Free(shared))
	require.NoError(t, c.DefaultStream().WaitStream(s))
	require.NoError(t, s.WaitStream(c.DefaultStream()))
	require.NoError(t, s.Close())
	_, err := c.Alloc(4096, s)
	require.ErrorIs(t, err, cupool.ErrClosed)
}

// A server that makes a stream for each request has a constant number of them, in
// constant memory.
func TestStreamsWithoutEnd(t *testing.T) {
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		rounds := func(n int) {
			for range n {
				serve(t, c, p)
			}
		}
		rounds(100)
		books := func() int64 { return c.Stats().MetadataBytes + p.Stats().MetadataBytes }
		heap, meta := pooltest.HeapInUse(), books()
		rounds(testkit.Rounds(5_000))
		require.LessOrEqual(t, c.Slots(), 20)
		require.LessOrEqual(t, p.Slots(), 20)
		require.Less(t, pooltest.HeapInUse()-heap, int64(8<<20), "bytes more than after 100 streams")
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

// A block that lives as long as the program may be used on one stream after the other: of those
// that were closed nothing stays.
func TestLiveBlockOnStreamAfterStream(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=2M")
	for n := range 20 {
		x.Run(fmt.Sprintf("use:a@%[1]d use:a@%[2]d close:%[1]d close:%[2]d", 2*n+1, 2*n+2))
	}
	require.LessOrEqual(t, c.Slots(), 5)
	x.Run("busy:99 use:a@99 free:a process")
	require.Equal(t, "0 large: [Pending 2M][Free 18M]", x.Layout())
	d.Idle(x.Stream("99"))
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

// Of a stream that was closed nothing stays when its memory went back: no heap, no
// addresses, no notes of segments that it might miss.
func TestNothingOfClosedStream(t *testing.T) {
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 40*mib, nil)))
		require.NoError(t, c.EmptyCache())
		before, regrets := c.Stats().MetadataBytes, c.Regrets()
		for range 3 {
			s := pooltest.NewStream(t, c)
			require.NoError(t, c.Free(pooltest.Alloc(t, c, 40*mib, s)))
			require.NoError(t, c.EmptyCache())
			require.NoError(t, c.Free(pooltest.Alloc(t, c, 40*mib, s)))
			require.NoError(t, s.Close())
			require.NoError(t, c.EmptyCache())
			require.Equal(t, 1, c.Heaps())
			require.Equal(t, regrets, c.Regrets())
		}
		require.LessOrEqual(t, c.Stats().MetadataBytes, before+1<<20)
	})
}

// The handle of a block whose heap is gone is refused.
func TestHandleOfClosedStream(t *testing.T) {
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		s := pooltest.NewStream(t, c)
		b := pooltest.Alloc(t, c, 40*mib, s)
		require.NoError(t, c.Free(b))
		require.NoError(t, s.Close())
		require.NoError(t, c.EmptyCache())
		require.Equal(t, 1, c.Heaps())
		require.ErrorIs(t, c.Free(b), cupool.ErrDoubleFree)
		require.ErrorIs(t, c.RecordStream(b, nil), cupool.ErrUseAfterFree)
	})
}

// An empty heap goes also where another goroutine looks through the heaps when the last
// of its memory is taken.
func TestMemoryOfClosedStreamBesideStats(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=40M@1 free:a close:1")
	x.Stream("2")
	x.Run("b=512@2") // of the other kind
	unlock := c.LockHeaps()
	taken := pooltest.Start(func() error { x.Run("c=40M@2"); return nil })
	_, _ = pooltest.Returns(taken)
	unlock()
	require.NoError(t, <-taken)
	require.EqualValues(t, 2, c.Stats().DriverAllocs)
	require.Equal(t, 2, c.Heaps())
}

// freeManyOn allocates n blocks and frees each on another stream.
func freeManyOn(t *testing.T, c *cupool.Pool, s *cupool.Stream, n int, size int64) {
	t.Helper()
	for range n {
		b := pooltest.Alloc(t, c, size, nil)
		require.NoError(t, c.FreeOn(b, s))
	}
}

// An event serves every block that was freed since the last one, and no more
// than so many are in flight: further frees cost no driver call at all.
func TestOneEventServesManyFrees(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.SmallSegment = 16 * mib })
	x := pooltest.NewScript(t, c, d)
	s := x.Stream("1")
	require.NoError(t, c.Reserve(512, nil))
	before := d.Total()
	_, err := c.ProcessDeferred()
	require.NoError(t, err)
	require.Equal(t, before, d.Total(), "nothing waits, nothing to ask")
	d.Busy(s)
	const inFlight = 256
	for i := range inFlight {
		freeManyOn(t, c, s, 31, 512)
		require.Equal(t, i, d.Count("RecordEvent"), "not before a batch is full")
		freeManyOn(t, c, s, 1, 512)
		require.Equal(t, i+1, d.Count("RecordEvent"), "an event for a full batch")
	}
	before = d.Total()
	freeManyOn(t, c, s, 1000, 512)
	require.Equal(t, before, d.Total(), "no driver call at all")
	require.EqualValues(t, 32*inFlight+1000, c.Stats().BlocksPending)

	d.Idle(s)
	queries := d.Count("QueryEvent")
	n, err := c.ProcessDeferred()
	require.NoError(t, err)
	require.Equal(t, 32*inFlight+1000, n)
	require.Equal(t, inFlight+1, d.Count("RecordEvent"), "one more for all the rest")
	require.LessOrEqual(t, d.Count("QueryEvent")-queries, inFlight+1)
	require.Equal(t, inFlight+1, d.Count("NewEvent"))
	require.NoError(t, c.Check())

	// Events are recycled.
	d.Busy(s)
	freeManyOn(t, c, s, 1000, 512)
	d.Idle(s)
	_, err = c.ProcessDeferred()
	require.NoError(t, err)
	require.Equal(t, inFlight+1, d.Count("NewEvent"))
	require.Zero(t, c.Stats().BlocksPending)
}

// Blocks come free epoch by epoch, as the stream's work advances.
func TestEpochsCompleteInOrder(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d)
	x.Run("a=2M b=4M c=5M busy:1 free:a@1 busy:1 free:b@1 busy:1 free:c@1")
	require.Equal(t, "0 large: [Pending 2M][Pending 4M][Pending 5M][Free 9M]", x.Layout())
	for _, want := range []string{
		"0 large: [Free 2M][Pending 4M][Pending 5M][Free 9M]",
		"0 large: [Free 6M][Pending 5M][Free 9M]",
		"0 large: [Free 20M]",
	} {
		require.Equal(t, want, x.Run("step:1 process").Layout())
	}
}

// With all events in flight, a block that came later is covered as soon as
// one of them is done and somebody looks.
func TestUncoveredBlocksAreCoveredLater(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d)
	s := x.Stream("1")
	x.Run("keep=70M")
	for range 4 {
		d.Busy(s)
		freeManyOn(t, c, s, 32, 64<<10)
	}
	d.Busy(s)
	freeManyOn(t, c, s, 10, 64<<10)
	require.Equal(t, 4, d.Count("RecordEvent"))
	d.Step(s)
	x.Run("big=10M") // a miss looks
	require.Equal(t, 5, d.Count("RecordEvent"))
	require.EqualValues(t, 106, c.Stats().BlocksPending)
	d.Idle(s)
	x.Run("big2=10M")
	require.Zero(t, c.Stats().BlocksPending)
}

// Where little waits, a miss grows rather than ask for an event, so that in
// time every event serves a batch.
func TestPatience(t *testing.T) {
	for name, tc := range map[string]struct {
		before string
		events int
	}{
		"in a small reserve":         {"a=1M free:a@1", 0},
		"in a large one":             {"keep=100M a=1M free:a@1", 1},
		"and little in a large one":  {"keep=1G a=1M free:a@1", 0},
		"but no longer than a batch": {strings.Repeat("a=1M free:a@1 ", 32), 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, d := pooltest.New(t, 2<<30)
			pooltest.NewScript(t, c, d).Run(tc.before).Run("b=1M c=1M d=1M")
			require.Equal(t, tc.events, d.Count("RecordEvent"))
		})
	}
}

// A block for which an event fails waits on: it is neither lost nor reused.
func TestFailingEvents(t *testing.T) {
	for _, call := range []string{"NewEvent", "RecordEvent", "QueryEvent"} {
		t.Run(call, func(t *testing.T) {
			c, d := pooltest.New(t, 1<<30)
			x := pooltest.NewScript(t, c, d).Run("a=20M busy:1 use:a@1")
			d.Fail(call, errors.New("no luck"))
			x.Run("free:a")
			require.Equal(t, "0 large: [Pending 20M]", x.Layout())
			_, err := c.ProcessDeferred()
			require.ErrorContains(t, err, "no luck")
			x.Run("b=20M idle:1") // the ladder goes on without it
			require.Equal(t, "0 large: [Pending 20M]; 0 large: [Live 20M]", x.Layout())
			require.Positive(t, c.Stats().EventFailures)

			d.Fail(call, nil)
			x.Run("process")
			require.Equal(t, "0 large: [Free 20M]; 0 large: [Live 20M]", x.Layout())
		})
	}
}

func TestSyncNeedsNoEvent(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=20M busy:1 use:a@1")
	d.Fail("RecordEvent", errors.New("no luck"))
	d.Fail("QueryEvent", errors.New("no luck"))
	x.Run("free:a sync:1")
	require.Equal(t, "0 large: [Free 20M]", x.Layout())
}

func TestWaits(t *testing.T) {
	pooltest.RunScripts(t, map[string][2]string{
		// What stream 0 waits for is over for stream 0, with no event query.
		"order proves":          {"a=20M busy:1 free:a@1 wait:0<1", "0 large: [Free 20M]"},
		"event after the free":  {"a=20M busy:1 free:a@1 mark:e@1 wait:0<e", "0 large: [Free 20M]"},
		"event before the free": {"a=20M busy:1 mark:e@1 free:a@1 wait:0<e process", "0 large: [Pending 20M]"},
		"the other way round":   {"a=20M busy:1 free:a@1 wait:1<0 process", "0 large: [Pending 20M]"},
		"somebody else waits":   {"a=20M busy:1 free:a@1 wait:2<1 process", "0 large: [Pending 20M]"},
		"only the owner's":      {"a=20M b=20M@2 busy:1 free:a@1 free:b@1 wait:2<1", "0 large: [Pending 20M]; 2 large: [Free 20M]"},
		"two users, one waited": {"a=20M busy:1 busy:2 use:a@1 use:a@2 free:a wait:0<1 process", "0 large: [Pending 20M]"},
		"two users, both":       {"a=20M busy:1 busy:2 use:a@1 use:a@2 free:a wait:0<1 wait:0<2", "0 large: [Free 20M]"},
		"one by order, one by event": {
			"a=20M busy:1 busy:2 use:a@1 use:a@2 free:a wait:0<1 idle:2 process", "0 large: [Free 20M]",
		},

		// Vector clocks: order is transitive.
		"through a third":      {"a=20M busy:1 free:a@1 wait:2<1 wait:0<2", "0 large: [Free 20M]"},
		"in the wrong order":   {"a=20M busy:1 free:a@1 wait:0<2 wait:2<1 process", "0 large: [Pending 20M]"},
		"through two":          {"a=20M busy:1 free:a@1 wait:2<1 wait:3<2 wait:0<3", "0 large: [Free 20M]"},
		"an event is a moment": {"a=20M busy:1 free:a@1 mark:e@2 wait:2<1 wait:0<e process", "0 large: [Pending 20M]"},
		"an event remembers":   {"a=20M busy:1 free:a@1 wait:2<1 mark:e@2 wait:0<e", "0 large: [Free 20M]"},
		"an older event later": {
			"a=20M b=20M busy:1 free:a@1 mark:e@1 free:b@1 wait:0<1 wait:0<e", "0 large: [Free 20M]; 0 large: [Free 20M]",
		},
		"a newer free waits again": {"a=20M b=20M busy:1 free:a@1 wait:0<1 free:b@1 process", "0 large: [Free 20M]; 0 large: [Pending 20M]"},
	}, 1<<30)
}

func TestWaitAsksNothing(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=20M busy:1 free:a@1")
	e, err := x.Stream("1").Record()
	require.NoError(t, err)
	queries := d.Count("QueryEvent")
	require.NoError(t, c.DefaultStream().Wait(e))
	require.Equal(t, queries, d.Count("QueryEvent"))
	require.Equal(t, "0 large: [Free 20M]", x.Layout())
	x.Run("idle:1 process")
	require.Equal(t, "0 large: [Free 20M]", x.Layout(), "it does not come free twice")
}

func TestFreeLater(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=2M b=3M c=4M")
	before := d.Total()
	c.FreeLater(x.Block("a"))
	c.FreeLater(x.Block("b"))
	require.Equal(t, "0 large: [Live 2M][Live 3M][Live 4M][Free 11M]", x.Layout(), "nothing happens yet")
	require.Equal(t, before, d.Total())

	x.Run("free:b") // freed otherwise in the meantime
	n, err := c.ProcessDeferred()
	require.NoError(t, err)
	require.Zero(t, n, "that is the number of those that waited for streams")
	require.Equal(t, "0 large: [Free 5M][Live 4M][Free 11M]", x.Layout())

	c.FreeLater(x.Block("c"))
	x.Run("d=20M")
	require.Equal(t, "0 large: [Live 20M]", x.Layout(), "a miss frees what was queued")

	c.FreeLater(x.Block("d"))
	require.NoError(t, c.Close(), "Close does too")
}

// Producers and consumers on different streams, freeing across them, while
// somebody processes and somebody synchronizes.
func TestWaitsParallel(t *testing.T) {
	c, d := pooltest.NewParallel(t, 8<<30, pooltest.WithMagazines)
	x := pooltest.NewScript(t, c, d)
	streams := []*cupool.Stream{x.Stream("0"), x.Stream("1"), x.Stream("2")}
	blocks := make(chan cupool.Block, 64)
	var producers, consumers sync.WaitGroup
	for g := range 2 {
		producers.Go(func() {
			for i := range 3000 {
				b, err := c.Alloc(int64(512<<(i%8)), streams[g])
				if err != nil {
					t.Error(err)
					return
				}
				blocks <- b
			}
		})
	}
	for g := range 2 {
		consumers.Go(func() {
			for b := range blocks {
				if err := c.FreeOn(b, streams[g+1]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	consumers.Go(func() {
		for i := range 300 {
			var err error
			switch i % 3 {
			case 0:
				_, err = c.ProcessDeferred()
			case 1:
				err = streams[1].Sync()
			default:
				err = streams[0].WaitStream(streams[2])
			}
			if err != nil {
				t.Error(fmt.Errorf("round %d: %w", i, err))
			}
		}
	})
	producers.Wait()
	close(blocks)
	consumers.Wait()
	x.Run("process")
	require.Zero(t, c.Stats().BlocksPending)
	require.Zero(t, c.Stats().LiveBytes)
}

// An event that was synchronized proves that blocks are free, which the next
// look at them uses.
func TestEventSyncFrees(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=20M busy:1 free:a@1")
	e, err := x.Stream("1").Record()
	require.NoError(t, err)
	require.NoError(t, e.Sync())
	queries := d.Count("QueryEvent")
	x.Run("b=20M")
	require.Equal(t, "0 large: [Live 20M]", x.Layout())
	require.Equal(t, queries, d.Count("QueryEvent"))
}

// Every question to the device counts, also the program's own.
func TestEventQueries(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	e, err := c.DefaultStream().Record()
	require.NoError(t, err)
	_, err = e.Done()
	require.NoError(t, err)
	require.EqualValues(t, d.Count("QueryEvent"), c.Stats().EventQueries)
	d.Fail("QueryEvent", errors.New("no"))
	_, err = e.Done()
	require.Error(t, err)
	require.EqualValues(t, 2, c.Stats().EventQueries)
	require.EqualValues(t, 1, c.Stats().EventFailures)
	d.Fail("RecordEvent", errors.New("no"))
	_, err = c.DefaultStream().Record()
	require.Error(t, err)
	require.EqualValues(t, 2, c.Stats().EventFailures)
}

func TestEventErrors(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	other, _ := pooltest.New(t, 1<<30)
	s := pooltest.NewScript(t, c, d).Stream("1")
	foreign, err := other.DefaultStream().Record()
	require.NoError(t, err)
	require.ErrorIs(t, s.Wait(foreign), cupool.ErrForeignStream)
	require.ErrorIs(t, s.WaitStream(other.DefaultStream()), cupool.ErrForeignStream)

	e, err := s.Record()
	require.NoError(t, err)
	for call, do := range map[string]func() error{
		"RecordEvent":     func() error { _, err := s.Record(); return err },
		"QueryEvent":      func() error { _, err := e.Done(); return err },
		"SyncEvent":       e.Sync,
		"StreamWaitEvent": func() error { return c.DefaultStream().Wait(e) },
	} {
		d.Fail(call, errors.New("no "+call))
		require.ErrorContains(t, do(), "no "+call)
		d.Fail(call, nil)
		require.NoError(t, do(), call)
	}
	made := d.Count("NewEvent")
	require.NoError(t, e.Close())
	_, err = s.Record()
	require.NoError(t, err)
	require.Equal(t, made, d.Count("NewEvent"), "a closed event is used again")
	d.Fail("NewEvent", errors.New("no NewEvent"))
	for err = nil; err == nil; { // until no recycled one is left
		_, err = s.Record()
	}
	require.ErrorContains(t, err, "no NewEvent")
}

// A wait that the device refuses proves nothing.
func TestFailedWaitFreesNothing(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=20M busy:1 free:a@1")
	d.Fail("StreamWaitEvent", errors.New("no luck"))
	require.ErrorContains(t, c.DefaultStream().WaitStream(x.Stream("1")), "no luck")
	require.Equal(t, "0 large: [Pending 20M]", x.Layout())
	d.Fail("StreamWaitEvent", nil)
	x.Run("wait:0<1")
	require.Equal(t, "0 large: [Free 20M]", x.Layout())
}

// TestWaitInCapture: a wait of a capture is part of its graph. It orders no other work of the
// streams, which may go on with what they were given before the capture.
func TestWaitInCapture(t *testing.T) {
	for _, captured := range []string{"2", "1"} { // the one that waits, the one that is waited for
		c, d := pooltest.New(t, 1<<30)
		x := pooltest.NewScript(t, c, d).Run("a=20M@2 busy:1 free:a@1")
		end, err := x.Stream(captured).Capture()
		require.NoError(t, err)
		x.Run("mark:e@1 wait:2<e")
		end()
		require.Equal(t, "2 large: [Pending 20M]", x.Layout(), captured)
		x.Run("wait:2<1")
		require.Equal(t, "2 large: [Free 20M]", x.Layout(), captured)
	}
}

// TestWaitOtherDevice: a stream waits for an event of another device, where both
// can do that.
func TestWaitOtherDevice(t *testing.T) {
	var pools []*cupool.Pool
	for range 2 {
		d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 26})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		c := pooltest.Open(t, cupool.Config{Driver: d})
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		pools = append(pools, c)
	}
	from, err := pools[0].NewStream()
	require.NoError(t, err)
	to := pools[1].DefaultStream()
	gate, seen := make(chan struct{}), false
	require.NoError(t, from.Launch(func() { <-gate; seen = true }))
	e, err := from.Record()
	require.NoError(t, err)
	require.NoError(t, to.Wait(e))
	require.NoError(t, e.Close())
	var order bool
	require.NoError(t, to.Launch(func() { order = seen }))
	close(gate)
	require.NoError(t, to.Sync())
	require.True(t, order)
	require.NoError(t, to.WaitStream(from))
	require.NoError(t, from.Close())
	require.ErrorIs(t, to.WaitStream(from), cupool.ErrClosed)
}

// TestWaitsInFunction: a function that a stream runs is refused what would wait for it, at
// once, and the stream goes on. What needs no wait works.
func TestWaitsInFunction(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		c := pooltest.Open(t, cupool.Config{Driver: pooltest.OpenHost(t), WaitTimeout: timeout, Backing: cupool.BackingVMM})
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		s, other := pooltest.NewStream(t, c), pooltest.NewStream(t, c)
		b := pooltest.Alloc(t, c, 1000, s)
		before := must(s.Record())
		waits := map[string]func() error{
			"Sync":        s.Sync,
			"SyncContext": func() error { return s.SyncContext(t.Context()) },
			"CopyOut":     func() error { return s.CopyOut(make([]byte, 10), b.Ptr()) },
			"CopyIn":      func() error { return s.CopyIn(b.Ptr(), make([]byte, 10)) },
			"Event.Sync": func() error {
				e := must(s.Record())
				return errors.Join(e.Sync(), e.Close())
			},
			"Stream.Close": s.Close,
			"Pool.Sync":    c.Sync,
			"Close":        c.Close,
			"pool's Close": p.Close,
			"Retire":       p.Retire,
			"Reset":        c.Reset,
			"Sleep":        func() error { return c.Sleep(nil) },
			"EmptyCache":   c.EmptyCache,
			"Trim":         func() error { _, err := c.Trim(0); return err },
		}
		got, waited := map[string]error{}, make(chan struct{})
		require.NoError(t, s.Launch(func() {
			<-waited
			for name, wait := range waits {
				got[name] = wait()
			}
			got[""] = errors.Join(before.Sync(), other.Sync(), c.Free(pooltest.Alloc(t, c, 1000, other)))
		}))
		require.NoError(t, c.DefaultStream().WaitStream(s)) // who waits for that waits for the function
		close(waited)
		testkit.Finishes(t, "a function", func() { require.NoError(t, s.Sync()) })
		for name := range waits {
			require.ErrorIs(t, got[name], cupool.ErrNotPermitted, name)
		}
		require.NoError(t, got[""])
		require.NoError(t, errors.Join(before.Close(), c.Free(b), c.Close()))
	}
}
