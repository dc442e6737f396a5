package hostdev_test

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/hostdev"
)

var _ device.Peers = (*hostdev.Device)(nil)

// mapped returns virtual memory, where there is such, of a handle that is released.
func mapped(t testing.TB, d *hostdev.Device, size int64) device.Ptr {
	t.Helper()
	if d.VMMGranularity() == 0 {
		return alloc(t, d, size)
	}
	p, err := d.AddressReserve(size)
	require.NoError(t, err)
	h, err := d.MemCreate(size)
	require.NoError(t, err)
	require.NoError(t, d.MemMap(p, size, h))
	require.NoError(t, d.MemSetAccess(p, size))
	require.NoError(t, d.MemRelease(h))
	return p
}

// TestPeerAccess: work touches another device's memory after EnablePeer only, in
// one direction. Copies need no leave.
func TestPeerAccess(t *testing.T) {
	a, b := open(t, 64*mib), open(t, 64*mib)
	got := make([]byte, 4096)
	for _, p := range []device.Ptr{alloc(t, b, 4096), mapped(t, b, 2*mib)} {
		require.ErrorIs(t, a.Memset(p, 1, 4096, 0), device.ErrInvalidRange)
		require.ErrorContains(t, a.Memset(p, 1, 4096, 0), "EnablePeer")
		require.ErrorIs(t, a.CopyIn(p, got, 0), device.ErrInvalidRange)
		require.ErrorIs(t, a.CopyOut(got, p, 0), device.ErrInvalidRange)
	}
	p, q := alloc(t, a, 4096), mapped(t, b, 2*mib)
	require.NoError(t, a.Memset(p, 7, 4096, 0))
	require.NoError(t, a.Copy(q, p, 4096, 0))
	require.NoError(t, a.SyncStream(0))
	require.NoError(t, b.Copy(p, q, 4096, 0))
	require.NoError(t, b.CopyOut(got, q, 0))
	require.Equal(t, bytes.Repeat([]byte{7}, 4096), got)
	require.ErrorIs(t, a.Copy(q, p, 4097, 0), device.ErrInvalidRange)
	require.ErrorIs(t, a.Copy(q+2*mib-1, p, 4096, 0), device.ErrInvalidRange)

	require.NoError(t, a.CanAccessPeer(b))
	for range 2 {
		require.NoError(t, a.EnablePeer(b))
	}
	require.NoError(t, a.EnablePeer(a))
	for _, p := range []device.Ptr{q, alloc(t, b, 4096), mapped(t, b, 2*mib)} {
		require.NoError(t, a.Memset(p, 8, 4096, 0))
		require.NoError(t, a.CopyOut(got, p, 0))
		require.Equal(t, bytes.Repeat([]byte{8}, 4096), got)
	}
	require.ErrorIs(t, b.Memset(p, 1, 4096, 0), device.ErrInvalidRange)
	require.NoError(t, b.Close())
	require.ErrorIs(t, a.Memset(q, 1, 4096, 0), device.ErrInvalidRange)
	require.ErrorIs(t, a.Copy(p, q, 4096, 0), device.ErrInvalidRange)
	require.NoError(t, a.SyncStream(0))
}

type stranger struct{}

func (stranger) Name() string { return "a stranger" }

func TestPeerErrors(t *testing.T) {
	a, b := open(t, mib), open(t, mib)
	e := newEvent(t, b)
	for _, f := range []func(device.Peer) error{
		a.CanAccessPeer, a.EnablePeer, func(p device.Peer) error { return a.StreamWaitPeerEvent(0, e, p) },
	} {
		require.ErrorIs(t, f(nil), device.ErrNotSupported)
		require.ErrorIs(t, f(stranger{}), device.ErrNotSupported)
		require.ErrorContains(t, f(stranger{}), "a stranger")
		require.NoError(t, f(b))
	}
	require.ErrorIs(t, a.StreamWaitPeerEvent(99, e, b), device.ErrInvalidHandle)
	require.ErrorIs(t, a.StreamWaitPeerEvent(0, 99, b), device.ErrInvalidHandle)
	require.NoError(t, b.Close())
	require.ErrorIs(t, a.EnablePeer(b), device.ErrClosed)
	require.ErrorIs(t, a.StreamWaitPeerEvent(0, e, b), device.ErrClosed)
	require.ErrorIs(t, b.EnablePeer(a), device.ErrClosed)
}

// TestPeerWait: a stream waits for another device's work as of the call, and
// goes on when that device is closed or lost.
func TestPeerWait(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, b *hostdev.Device, release func()){
		"done":   func(_ *testing.T, _ *hostdev.Device, release func()) { release() },
		"closed": func(t *testing.T, b *hostdev.Device, release func()) { release(); require.NoError(t, b.Close()) },
		"lost": func(t *testing.T, b *hostdev.Device, release func()) {
			require.NoError(t, b.Launch(0, func() { panic("lost") }))
			release()
			require.ErrorIs(t, b.SyncStream(0), device.ErrDeviceLost)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := open(t, mib), open(t, mib)
			s, e := newStream(t, b), newEvent(t, b)
			release := hold(t, b, s)
			require.NoError(t, b.RecordEvent(e, s))
			require.NoError(t, a.StreamWaitPeerEvent(0, e, b))
			done := newEvent(t, a)
			require.NoError(t, a.RecordEvent(done, 0))
			over, err := a.QueryEvent(done)
			require.NoError(t, err)
			require.False(t, over)
			end(t, b, release)
			require.NoError(t, a.SyncStream(0))
		})
	}
}

// TestPeerWaitsEnd makes streams of several devices wait for each other, from
// several goroutines and at random. All work comes to an end.
func TestPeerWaitsEnd(t *testing.T) {
	seed := testkit.Seed(t)
	var all []*hostdev.Device
	var events []device.Event
	for range 4 {
		d := open(t, mib)
		all, events = append(all, d), append(events, newEvent(t, d))
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			for range 300 {
				i, j := rng.IntN(4), rng.IntN(4)
				assert.NoError(t, all[i].RecordEvent(events[i], 0))
				assert.NoError(t, all[j].StreamWaitPeerEvent(0, events[i], all[i]))
			}
		})
	}
	wg.Wait()
	for _, d := range all {
		require.NoError(t, d.SyncStream(0))
	}
}
