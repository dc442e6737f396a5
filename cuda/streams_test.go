package cuda

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit"
)

func TestStreams(t *testing.T) {
	d, other := openTest(t), openTest(t, Pinned())
	require.Equal(t, d.ctx, other.ctx, "Drivers of one GPU share the context")
	own := newStream(t, d)
	p := alloc(t, d, 4096)
	runtime.LockOSThread() // for the per-thread stream
	defer runtime.UnlockOSThread()
	for i, s := range []StreamHandle{own, 0, LegacyStream, PerThreadStream} {
		for _, dr := range []*driver{d, other} {
			require.NoError(t, dr.OwnsStream(s))
			e := newEvent(t, dr)
			require.NoError(t, dr.Memset(p, byte(i), 4096, s))
			require.NoError(t, dr.RecordEvent(e, s))
			require.NoError(t, dr.StreamWaitEvent(own, e))
			require.NoError(t, dr.SyncEvent(e))
			done, err := dr.QueryEvent(e)
			require.NoError(t, err)
			require.True(t, done)
			b := make([]byte, 1)
			require.NoError(t, dr.CopyOut(b, p, s))
			require.Equal(t, byte(i), b[0])
			require.NoError(t, dr.DestroyEvent(e))
			require.NoError(t, dr.SyncStream(s))
		}
	}
	require.ErrorIs(t, other.DestroyStream(own), device.ErrInvalidHandle, "not its own")
	require.ErrorIs(t, d.DestroyStream(0), device.ErrInvalidHandle)
	require.NoError(t, d.DestroyStream(own))
	require.ErrorIs(t, d.DestroyStream(own), device.ErrInvalidHandle)
}

// TestQueryEvents asks for several events at once.
func TestQueryEvents(t *testing.T) {
	d := openTest(t)
	k := testKernels(t, d)
	busy, waiting := newStream(t, d), newStream(t, d)
	es := []EventHandle{newEvent(t, d), newEvent(t, d), newEvent(t, d)}
	require.NoError(t, d.RecordEvent(es[0], waiting))
	require.NoError(t, d.SyncStream(waiting))
	release, err := k.Busy(uintptr(busy))
	require.NoError(t, err)
	require.NoError(t, d.RecordEvent(es[1], busy))
	n, err := d.QueryEvents(es)
	require.NoError(t, err)
	require.Equal(t, 1, n, "up to the first that is not done")
	release()
	require.NoError(t, d.SyncEvent(es[1]))
	n, err = d.QueryEvents(es)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	n, err = d.QueryEvents(nil)
	require.NoError(t, err)
	require.Zero(t, n)

	e := newEvent(t, d)
	require.NoError(t, d.DestroyEvent(e))
	_, err = d.QueryEvents([]EventHandle{es[0], e})
	require.ErrorIs(t, err, device.ErrInvalidHandle)
}

// TestCopyInReusesSource overwrites the source while the copy cannot have
// happened yet, from memory of all kinds.
func TestCopyInReusesSource(t *testing.T) {
	d := openTest(t)
	k := testKernels(t, d)
	s := newStream(t, d)
	for _, n := range []int64{1, 4096, 64 << 10, 64<<10 + 1, 1 << 20, 16 << 20} {
		pinned, err := d.HostAlloc(n)
		require.NoError(t, err)
		registered := make([]byte, n)
		_, err = d.HostRegister(registered)
		require.NoError(t, err)
		p, want, got := alloc(t, d, n), testkit.Pattern(n), make([]byte, n)
		for name, src := range map[string][]byte{"heap": make([]byte, n), "pinned": hostBytes(pinned, n), "registered": registered} {
			copy(src, want)
			require.NoError(t, k.Spin(uintptr(s), 10*time.Millisecond))
			require.NoError(t, d.CopyIn(p, src, s))
			clear(src)
			require.NoError(t, d.CopyOut(got, p, s))
			require.True(t, bytes.Equal(want, got), "%s, %d bytes: the copy read its source after CopyIn returned", name, n)
		}
		require.NoError(t, d.HostUnregister(registered))
		require.NoError(t, d.HostFree(pinned))
		require.NoError(t, d.MemFree(p))
	}
}

// TestTwoDevices: nothing of one GPU is taken by the other without peer access,
// but by copies.
func TestTwoDevices(t *testing.T) {
	a, b := openTestOn(t, 0), openTestOn(t, 1)
	sa, sb := newStream(t, a), newStream(t, b)
	pa, pb := alloc(t, a, 4096), alloc(t, b, 4096)
	eb := newEvent(t, b)
	for name, f := range map[string]func() error{
		"stream of copy":   func() error { return a.Copy(pa, pa, 1, sb) },
		"stream of memset": func() error { return a.Memset(pa, 0, 1, sb) },
		"stream of in":     func() error { return a.CopyIn(pa, []byte{1}, sb) },
		"sync":             func() error { return a.SyncStream(sb) },
		"record":           func() error { return b.RecordEvent(eb, sa) },
		"wait":             func() error { return b.StreamWaitEvent(sa, eb) },
		"owns":             func() error { return a.OwnsStream(sb) },
	} {
		err := f()
		assert.ErrorIs(t, err, device.ErrForeignStream, name)
	}
	assert.ErrorContains(t, a.OwnsStream(sb), "cuda:1")
	for name, f := range map[string]func() error{
		"memset":   func() error { return a.Memset(pb, 0, 1, sa) },
		"copy in":  func() error { return a.CopyIn(pb, []byte{1}, sa) },
		"copy out": func() error { return a.CopyOut(make([]byte, 1), pb, sa) },
	} {
		assert.ErrorIs(t, f(), device.ErrForeignPointer, name)
	}
	assert.ErrorIs(t, a.RecordEvent(eb, sa), device.ErrInvalidHandle)
	assert.ErrorIs(t, a.MemFree(pb), device.ErrInvalidRange)
	assert.ErrorIs(t, a.DestroyStream(sb), device.ErrInvalidHandle)
	require.NoError(t, a.Copy(pa, pa+8, 8, sa))
	require.NoError(t, b.SyncStream(sb))
}

// TestContextSetOnce counts calls: a thread that has the context pays for
// asking only.
func TestContextSetOnce(t *testing.T) {
	needFake(t)
	d := openTest(t)
	s, e := newStream(t, d), newEvent(t, d)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, d.RecordEvent(e, s))
	fakecuda.Count(true)
	for range 10 {
		require.NoError(t, d.RecordEvent(e, s))
	}
	assert.Equal(t, 10, fakecuda.Calls("cuEventRecord"))
	assert.Equal(t, 10, fakecuda.Calls("cuCtxGetCurrent"))
	assert.Zero(t, fakecuda.Calls("cuCtxSetCurrent"))
	assert.Zero(t, fakecuda.Calls("cuStreamGetCtx"))
}
