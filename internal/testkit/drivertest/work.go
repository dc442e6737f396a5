package drivertest

import (
	"bytes"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// testWorkLags: submitting returns before the work is done, and a wait does not.
func testWorkLags(f *fixture) {
	t, s, p := f.t, f.stream(), f.alloc(4*mib)
	release := f.busy(s)
	testkit.Finishes(f.t, "a submission", func() {
		assert.NoError(t, f.Memset(p, 1, 4*mib, s))
		assert.NoError(t, f.Copy(p, p+2*mib, 2*mib, s))
		src := []byte("small sources are staged")
		assert.NoError(t, f.CopyIn(p, src, s))
		clear(src)
	})
	if f.o.WaitsRun {
		require.NoError(t, f.SyncStream(s))
	} else {
		synced := make(chan error, 1)
		go func() { synced <- f.SyncStream(s) }()
		select {
		case <-synced:
			t.Fatal("SyncStream did not wait")
		case <-time.After(10 * time.Millisecond):
		}
		release()
		require.NoError(t, <-synced)
	}
	if !f.o.NoContents {
		require.Equal(t, "small sources are staged", string(f.read(p, 24, s)))
	}
}

// testIndependent: a busy stream holds up no other.
func testIndependent(f *fixture) {
	busy, s, p := f.stream(), f.stream(), f.alloc(4096)
	release := f.busy(busy)
	testkit.Finishes(f.t, "another stream", func() {
		assert.NoError(f.t, f.Memset(p, 1, 4096, s))
		assert.NoError(f.t, f.SyncStream(s))
	})
	release()
}

func testStreamHandles(f *fixture) {
	t, s := f.t, f.stream()
	require.NoError(t, f.DestroyStream(s))
	require.ErrorIs(t, f.DestroyStream(s), cupool.ErrInvalidHandle, "again")
	require.ErrorIs(t, f.DestroyStream(0), cupool.ErrInvalidHandle, "the default stream")
	if l, ok := f.Driver.(cupool.Launcher); ok {
		require.ErrorIs(t, l.Launch(0, nil), cupool.ErrInvalidHandle, "no function")
		require.Error(t, l.Launch(s, func() {}))
	}
	if f.o.Adopts {
		return
	}
	require.NotEqual(t, s, f.stream(), "it takes the slot of the one that is gone")
	for name, err := range map[string]error{
		"sync": f.SyncStream(s), "memset": f.Memset(0, 0, 0, s), "record": f.RecordEvent(f.event(), s),
		"wait": f.StreamWaitEvent(s, f.event()), "one that never was": f.SyncStream(12345),
	} {
		require.ErrorIs(t, err, cupool.ErrInvalidHandle, name)
	}
}

func testEventNeverRecorded(f *fixture) {
	e := f.event()
	f.requireDone(e, true)
	require.NoError(f.t, f.SyncEvent(e))
	require.NoError(f.t, f.StreamWaitEvent(0, e))
	require.NoError(f.t, f.SyncStream(0))
}

// testEventMarks: an event is done when the work before it is, though later work runs.
func testEventMarks(f *fixture) {
	t, s, e, p := f.t, f.stream(), f.event(), f.alloc(4096)
	require.NoError(t, f.RecordEvent(e, s))
	require.NoError(t, f.SyncEvent(e))
	f.requireDone(e, true)

	release := f.busy(s)
	require.NoError(t, f.Memset(p, 1, 4096, s))
	require.NoError(t, f.RecordEvent(e, s))
	f.requireDone(e, false)
	release()
	testkit.Finishes(f.t, "SyncEvent", func() { assert.NoError(t, f.SyncEvent(e)) })
	later := f.busy(s)
	f.requireDone(e, true)
	later()
}

func testEventLastRecord(f *fixture) {
	t, a, b, e := f.t, f.stream(), f.stream(), f.event()
	release := f.busy(a)
	require.NoError(t, f.RecordEvent(e, a))
	f.requireDone(e, false)
	require.NoError(t, f.RecordEvent(e, b)) // idle: overwrites
	require.NoError(t, f.SyncEvent(e))
	f.requireDone(e, true)
	release()
}

// testEventWait: a wait takes the record that is the last one at the time of the
// call, also when the event is recorded again or destroyed after that.
func testEventWait(f *fixture) {
	t, a, b, c := f.t, f.stream(), f.stream(), f.stream()
	e, end := f.event(), f.event()
	release := f.busy(a)
	require.NoError(t, f.RecordEvent(e, a))
	require.NoError(t, f.StreamWaitEvent(b, e))
	require.NoError(t, f.RecordEvent(end, b))
	require.NoError(t, f.RecordEvent(e, c)) // too late for b
	require.NoError(t, f.StreamWaitEvent(c, e))
	require.NoError(t, f.DestroyEvent(e)) // and so is this
	time.Sleep(5 * time.Millisecond)
	f.requireDone(end, false)
	require.NoError(t, f.SyncStream(c), "a stream that waits for its own event")
	release()
	testkit.Finishes(f.t, "the waiting stream", func() { assert.NoError(t, f.SyncEvent(end)) })
}

// testEventOrders: work that waits for an event sees what was written before it.
func testEventOrders(f *fixture) {
	f.contents()
	t, writer, reader, e := f.t, f.stream(), f.stream(), f.event()
	src, dst := f.alloc(mib), f.alloc(mib)
	for round := range byte(20) {
		var release func()
		if round%5 == 0 {
			release = f.busy(writer)
		}
		require.NoError(t, f.Memset(src, round, mib, writer))
		require.NoError(t, f.RecordEvent(e, writer))
		require.NoError(t, f.StreamWaitEvent(reader, e))
		require.NoError(t, f.Copy(dst, src, mib, reader))
		require.NoError(t, f.RecordEvent(e, reader))
		require.NoError(t, f.StreamWaitEvent(writer, e))
		if release != nil {
			release()
		}
		require.True(t, bytes.Equal(bytes.Repeat([]byte{round}, mib), f.read(dst, mib, reader)), "round %d", round)
	}
}

func testEventOutlives(f *fixture) {
	s, e, p := f.stream(), f.event(), f.alloc(mib)
	require.NoError(f.t, f.Memset(p, 1, mib, s))
	require.NoError(f.t, f.RecordEvent(e, s))
	require.NoError(f.t, f.DestroyStream(s))
	f.requireDone(e, true)
	require.NoError(f.t, f.StreamWaitEvent(0, e))
}

func testEventHandles(f *fixture) {
	t, e := f.t, f.event()
	require.NoError(t, f.DestroyEvent(e))
	bads := []cupool.EventHandle{0, 1 << 19, ^cupool.EventHandle(0)}
	if e != f.event() { // which takes the room of the one that is gone; CUDA may give it the same address
		bads = append(bads, e)
	}
	for _, bad := range bads {
		for name, err := range map[string]error{
			"query": testkit.Second(f.QueryEvent(bad)), "destroy": f.DestroyEvent(bad), "record": f.RecordEvent(bad, 0),
			"sync": f.SyncEvent(bad), "wait": f.StreamWaitEvent(0, bad),
		} {
			require.ErrorIs(t, err, cupool.ErrInvalidHandle, "%s %#x", name, bad)
		}
	}
}
