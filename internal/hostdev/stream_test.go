package hostdev_test

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/device"
)

func TestStreamRunsInOrder(t *testing.T) {
	d := open(t, mib)
	for _, s := range []device.Stream{0, newStream(t, d)} {
		var got []int // written by one stream only, so no lock
		for i := range 10_000 {
			require.NoError(t, d.Launch(s, func() { got = append(got, i) }))
		}
		require.NoError(t, d.SyncStream(s))
		require.Len(t, got, 10_000)
		for i := range got {
			require.Equal(t, i, got[i])
		}
	}
}

// Every goroutine's submissions run in its own order; no two jobs of the
// stream at once.
func TestStreamManySubmitters(t *testing.T) {
	d := open(t, mib)
	s := newStream(t, d)
	p := alloc(t, d, 8)
	last, busy := make([]int, 8), 0
	var wg sync.WaitGroup
	for g := range last {
		wg.Go(func() {
			for i := 1; i <= 500; i++ {
				assert.NoError(t, d.Launch(s, func() {
					busy++
					assert.Equal(t, 1, busy)
					assert.Equal(t, i-1, last[g])
					last[g] = i
					busy--
				}))
				assert.NoError(t, d.Memset(p, byte(g), 8, s)) // sometimes inline
				if i%100 == 0 {
					assert.NoError(t, d.SyncStream(s))
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, d.SyncStream(s))
	for g := range last {
		require.Equal(t, 500, last[g])
	}
}

func TestSubmitReturnsBeforeWorkIsDone(t *testing.T) {
	d := open(t, 64*mib)
	s := newStream(t, d)
	p := alloc(t, d, 4*mib)
	release := hold(t, d, s)
	finishes(t, "a submission", func() {
		assert.NoError(t, d.Memset(p, 1, 4*mib, s))
		assert.NoError(t, d.Copy(p, p+2*mib, 2*mib, s))
		src := []byte("small sources are staged")
		assert.NoError(t, d.CopyIn(p, src, s))
		clear(src) // the copy has it already
		for range 10_000 {
			assert.NoError(t, d.Launch(s, func() {})) // the queue has no bound
		}
	})
	synced := make(chan struct{})
	go func() { defer close(synced); assert.NoError(t, d.SyncStream(s)) }()
	select {
	case <-synced:
		t.Fatal("SyncStream did not wait")
	case <-time.After(10 * time.Millisecond):
	}
	release()
	<-synced
	require.Equal(t, "small sources are staged", string(read(t, d, p, 24, s)))
}

// A large CopyIn waits for the stream instead of keeping a copy, and its
// source may be reused when it returns.
func TestCopyInLarge(t *testing.T) {
	d := open(t, 64*mib)
	s := newStream(t, d)
	p := alloc(t, d, mib)
	src := bytes.Repeat([]byte{5}, mib)
	release := hold(t, d, s)
	time.AfterFunc(5*time.Millisecond, release)
	require.NoError(t, d.CopyIn(p, src, s))
	clear(src)
	require.Equal(t, bytes.Repeat([]byte{5}, mib), read(t, d, p, mib, s))
}

func TestStreamsAreIndependent(t *testing.T) {
	d := open(t, mib)
	s := newStream(t, d)
	release := hold(t, d, 0)
	finishes(t, "another stream", func() { // stream 0 holds up nobody
		require.NoError(t, d.Launch(s, func() {}))
		require.NoError(t, d.SyncStream(s))
	})
	release()
}

func TestDestroyStream(t *testing.T) {
	d := open(t, mib)
	s := newStream(t, d)
	ran := false
	require.NoError(t, d.Launch(s, func() { time.Sleep(5 * time.Millisecond); ran = true }))
	require.NoError(t, d.DestroyStream(s))
	require.True(t, ran, "DestroyStream waits")

	require.ErrorIs(t, d.DestroyStream(0), device.ErrInvalidHandle)
	next := newStream(t, d) // takes the slot of s
	require.NotEqual(t, s, next)
	for name, err := range map[string]error{
		"again":  d.DestroyStream(s),
		"sync":   d.SyncStream(s),
		"launch": d.Launch(s, func() {}),
		"memset": d.Memset(0, 0, 0, s),
	} {
		require.ErrorIs(t, err, device.ErrInvalidHandle, name)
	}
	require.ErrorIs(t, d.SyncStream(12345), device.ErrInvalidHandle)
	require.Error(t, d.Launch(0, nil))
}

func TestRangesAreValidated(t *testing.T) {
	d := open(t, 64*mib)
	p, q := alloc(t, d, 1000), alloc(t, d, 1000)
	b := make([]byte, 1001)
	tests := map[string]struct {
		err error
		ok  bool
	}{
		"inside":              {d.Copy(p+1, q, 999, 0), true},
		"none":                {d.Copy(0, 0, 0, 0), true},
		"none in":             {d.CopyIn(0, nil, 0), true},
		"none out":            {d.CopyOut(nil, 0, 0), true},
		"set none":            {d.Memset(1, 1, 0, 0), true},
		"negative":            {d.Copy(p, q, -1, 0), false},
		"set negative":        {d.Memset(p, 0, -1, 0), false},
		"source past the end": {d.Copy(p, q+1, 1000, 0), false},
		"target past the end": {d.Copy(p+1, q, 1000, 0), false},
		"in past the end":     {d.CopyIn(p, b, 0), false},
		"out past the end":    {d.CopyOut(b, p, 0), false},
		"set past the end":    {d.Memset(p, 0, 1001, 0), false},
		"before":              {d.Memset(p-1, 0, 1, 0), false},
		"foreign":             {d.Memset(0x1000, 0, 1, 0), false},
		"wraps":               {d.Memset(p, 0, 1<<63-1, 0), false},
		"wraps from the top":  {d.Memset(^device.Ptr(0), 0, 2, 0), false},
	}
	for name, tt := range tests {
		if tt.ok {
			require.NoError(t, tt.err, name)
		} else {
			require.ErrorIs(t, tt.err, device.ErrInvalidRange, name)
		}
	}
}

func TestMemsetFills(t *testing.T) {
	d := open(t, 64*mib)
	p := alloc(t, d, mib)
	for _, n := range []int{1, 2, 3, 511, 16 << 10, 16<<10 + 1, 32 << 10, 100_003, mib - 2} {
		for _, v := range []byte{0, 1, 255} {
			require.NoError(t, d.Memset(p, 7, mib, 0))
			require.NoError(t, d.Memset(p+1, v, int64(n), 0))
			want := bytes.Repeat([]byte{7}, mib)
			copy(want[1:], bytes.Repeat([]byte{v}, n))
			require.True(t, bytes.Equal(want, read(t, d, p, mib, 0)), "%d bytes of %d", n, v)
		}
	}
}

// Random work on random streams, chained by events: the device must end up
// with what the same work done in order leaves.
func TestRandomWorkMatchesShadow(t *testing.T) {
	const size = 300_000
	rnd := newRand(t)
	d := open(t, 64*mib)
	p := alloc(t, d, size)
	shadow := make([]byte, size)
	streams := []device.Stream{0, newStream(t, d), newStream(t, d)}
	event := newEvent(t, d)
	at := func(n int) int { return rnd.IntN(size - n + 1) }
	for range 2000 {
		s := streams[rnd.IntN(len(streams))]
		require.NoError(t, d.StreamWaitEvent(s, event))
		n := 1 + rnd.IntN(1<<rnd.IntN(18))
		dst, src, v := at(n), at(n), byte(rnd.Uint32())
		switch rnd.IntN(5) {
		case 0:
			require.NoError(t, d.Memset(p+device.Ptr(dst), v, int64(n), s))
			copy(shadow[dst:], bytes.Repeat([]byte{v}, n))
		case 1:
			require.NoError(t, d.Copy(p+device.Ptr(dst), p+device.Ptr(src), int64(n), s))
			copy(shadow[dst:dst+n], shadow[src:src+n])
		case 2:
			b := bytes.Repeat([]byte{v, v + 1}, n)[:n]
			require.NoError(t, d.CopyIn(p+device.Ptr(dst), b, s))
			copy(shadow[dst:], b)
			clear(b)
		case 3:
			if rnd.IntN(20) == 0 { // seldom: it empties the queues
				require.True(t, bytes.Equal(shadow[src:src+n], read(t, d, p+device.Ptr(src), n, s)))
			}
		case 4:
			require.NoError(t, d.Launch(s, func() { time.Sleep(20 * time.Microsecond) }))
		}
		require.NoError(t, d.RecordEvent(event, s))
	}
	require.NoError(t, d.SyncEvent(event))
	require.True(t, bytes.Equal(shadow, read(t, d, p, size, 0)))
}
