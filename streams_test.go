package cupool_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
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

func TestNewStreamErrors(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	d.Fail("NewStream", errors.New("too many"))
	_, err := c.NewStream()
	require.ErrorContains(t, err, "too many")
	d.Fail("NewStream", nil)
	require.NoError(t, c.Close())
	_, err = c.NewStream()
	require.ErrorIs(t, err, cupool.ErrClosed)
	_, err = c.AdoptStream(1)
	require.ErrorIs(t, err, cupool.ErrClosed)
}

func TestAdoptStream(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	h, err := d.NewStream()
	require.NoError(t, err)
	s, err := c.AdoptStream(h)
	require.NoError(t, err)
	require.Equal(t, h, s.Handle())
	again, err := c.AdoptStream(h)
	require.NoError(t, err)
	require.Same(t, s, again, "the same handle, the same stream")
	def, err := c.AdoptStream(0)
	require.NoError(t, err)
	require.Same(t, c.DefaultStream(), def)

	require.NoError(t, s.Close())
	require.Zero(t, d.Count("DestroyStream"), "it is somebody else's to destroy")
	again, err = c.AdoptStream(h)
	require.NoError(t, err)
	require.NotSame(t, s, again, "it was closed")
	require.NoError(t, c.Close())
	require.Zero(t, d.Count("DestroyStream"))
}

func TestAdoptStreamParallel(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	h, err := d.NewStream()
	require.NoError(t, err)
	streams := make([]*cupool.Stream, 8)
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() { streams[i], _ = c.AdoptStream(h) })
	}
	wg.Wait()
	for _, s := range streams {
		require.Same(t, streams[0], s)
	}
}

// ownerDriver can tell its own streams.
type ownerDriver struct {
	*pooltest.Driver
	err error
}

func (d ownerDriver) OwnsStream(cupool.StreamHandle) error { return d.err }

func TestAdoptForeignStream(t *testing.T) {
	d := ownerDriver{pooltest.NewDriver(1 << 30), errors.New("of context 2")}
	c, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	_, err = c.AdoptStream(7)
	require.ErrorIs(t, err, cupool.ErrForeignStream)
	require.ErrorIs(t, err, d.err)
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
	b, err := c.Alloc(512, nil)
	require.NoError(t, err)
	d.Fail("Memset", errors.Join(cupool.ErrDeviceLost, errors.New("illegal address")))
	require.ErrorIs(t, c.DefaultStream().Memset(b.Ptr(), 0, 512), cupool.ErrDeviceLost)
	_, err = c.Alloc(512, nil)
	require.ErrorIs(t, err, cupool.ErrDeviceLost)
	require.ErrorContains(t, err, "illegal address")
	require.NoError(t, c.Free(b), "the books still work")
	require.NoError(t, c.Check())
}

// Real work, on the host device: what a slow stream reads must stay.
func TestRecordStreamProtects(t *testing.T) {
	c, err := cupool.New(cupool.Config{})
	require.NoError(t, err)
	s, err := c.NewStream()
	require.NoError(t, err)
	src, err := cupool.BufferFrom(c, []uint64{1, 2, 3, 4}, nil)
	require.NoError(t, err)
	dst, err := cupool.NewBuffer[uint64](c, 4, s)
	require.NoError(t, err)

	gate := make(chan struct{})
	require.NoError(t, s.WaitStream(c.DefaultStream()))
	require.NoError(t, s.Launch(func() { <-gate }))
	there, err := src.On(s)
	require.NoError(t, err)
	require.NoError(t, dst.CopyBuffer(there))
	require.NoError(t, src.Free()) // too early, but for RecordStream

	next, err := cupool.NewBuffer[uint64](c, 4, nil)
	require.NoError(t, err)
	require.NotEqual(t, src.Ptr(), next.Ptr())
	require.NoError(t, next.Memset(0xFF))
	close(gate)
	got, err := dst.ToHost()
	require.NoError(t, err)
	require.Equal(t, []uint64{1, 2, 3, 4}, got)

	require.NoError(t, next.Free())
	require.NoError(t, dst.Free())
	require.NoError(t, c.Close())
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
	busy, err := c.NewStream()
	require.NoError(t, err)
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
		case <-time.After(20 * time.Second):
			t.Error("it waits for the lock of the stream that grows")
		}
	}
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 30*mib, busy)))
	require.Equal(t, 1, asked)
}
