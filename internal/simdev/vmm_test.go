package simdev_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/device"
	"github.com/cupool/cupool/internal/simdev"
)

func TestVMM(t *testing.T) {
	d := simdev.New(simdev.Config{Capacity: 4 * gran})
	require.EqualValues(t, gran, d.VMMGranularity())
	home, err := d.AddressReserve(1 << 50)
	require.NoError(t, err)
	stitched, err := d.AddressReserve(3 * gran)
	require.NoError(t, err)
	a, err := d.MemCreate(gran)
	require.NoError(t, err)
	b, err := d.MemCreate(2 * gran)
	require.NoError(t, err)
	require.NoError(t, d.MemMap(home, gran, a))
	require.NoError(t, d.MemMap(home+7*gran, 2*gran, b))
	require.NoError(t, d.MemMap(stitched, 2*gran, b))
	require.NoError(t, d.MemMap(stitched+2*gran, gran, a))
	require.ErrorIs(t, d.Memset(stitched, 0, 1, 0), device.ErrInvalidRange)
	require.NoError(t, d.MemSetAccess(stitched, 3*gran))
	require.NoError(t, d.Memset(stitched, 0, 3*gran, 0))
	require.Equal(t, 2*20*time.Microsecond+33*time.Microsecond*3*gran/gib, d.Modelled(simdev.MemSetAccess))

	require.NoError(t, d.MemRelease(b))
	require.EqualValues(t, 3*gran, d.Stats().UsedBytes)
	require.NoError(t, d.MemUnmap(home+7*gran, 2*gran))
	require.EqualValues(t, 3*gran, d.Stats().UsedBytes)
	require.ErrorIs(t, d.MemUnmap(stitched, gran), device.ErrInvalidRange)
	require.ErrorIs(t, d.AddressFree(stitched, 3*gran), device.ErrInvalidRange)
	require.NoError(t, d.MemUnmap(stitched, 3*gran))
	require.Equal(t, 3*14*time.Microsecond, d.Modelled(simdev.MemUnmap))
	require.EqualValues(t, gran, d.Stats().UsedBytes)
	require.NoError(t, d.AddressFree(stitched, 3*gran))
	again, err := d.AddressReserve(3 * gran)
	require.NoError(t, err)
	require.Equal(t, stitched, again)

	for name, err := range map[string]error{
		"map outside":  d.MemMap(again+3*gran, gran, a),
		"map a part":   d.MemMap(again, 2*gran, a),
		"map over":     d.MemMap(home, gran, a),
		"access none":  d.MemSetAccess(again, gran),
		"not reserved": d.AddressFree(again, gran),
	} {
		require.ErrorIs(t, err, device.ErrInvalidRange, name)
	}
	require.ErrorIs(t, d.MemRelease(b), device.ErrInvalidHandle)
	require.ErrorIs(t, d.MemMap(again, 2*gran, b), device.ErrInvalidHandle)
	_, err = d.AddressReserve(1)
	require.ErrorIs(t, err, device.ErrInvalidRange)
	_, err = d.MemCreate(1)
	require.ErrorIs(t, err, device.ErrInvalidRange)
	_, err = d.MemCreate(4 * gran)
	require.ErrorIs(t, err, device.ErrOutOfMemory)
}

// Unmapping under queued work loses the device when the work runs.
func TestUnmapUnderWork(t *testing.T) {
	d := simdev.New(simdev.Config{ManualEvents: true})
	p, err := d.AddressReserve(gran)
	require.NoError(t, err)
	h, err := d.MemCreate(gran)
	require.NoError(t, err)
	require.NoError(t, d.MemMap(p, gran, h))
	require.NoError(t, d.MemSetAccess(p, gran))
	require.NoError(t, d.Copy(p, p+mib, mib, 0))
	require.NoError(t, d.MemUnmap(p, gran))
	require.ErrorIs(t, d.SyncStream(0), device.ErrDeviceLost)
}

func BenchmarkDevice(b *testing.B) {
	d := simdev.New(simdev.Config{})
	s, e, p := newStream(b, d), newEvent(b, d), alloc(b, d, 64*mib)
	for range 2000 { // as in a large replay
		alloc(b, d, 20*mib)
	}
	r, err := d.AddressReserve(1 << 40)
	require.NoError(b, err)
	h, err := d.MemCreate(gran)
	require.NoError(b, err)
	for i := range 5000 {
		require.NoError(b, d.MemMap(r+device.Ptr(i)*gran, gran, h))
	}
	works := []struct {
		name string
		f    func()
	}{
		{"record", func() { _ = d.RecordEvent(e, s) }},
		{"query", func() { _, _ = d.QueryEvent(e) }},
		{"wait", func() { _ = d.StreamWaitEvent(s, e) }},
		{"memset", func() { _ = d.Memset(p, 1, mib, s) }},
		{"alloc_free", func() { q, _ := d.MemAlloc(20 * mib); _ = d.MemFree(q) }},
		{"create_release", func() { h, _ := d.MemCreate(gran); _ = d.MemRelease(h) }},
		{"map_access_unmap", func() {
			_ = d.MemMap(r+6000*gran, gran, h)
			_ = d.MemSetAccess(r+6000*gran, gran)
			_ = d.MemUnmap(r+6000*gran, gran)
		}},
	}
	for _, w := range works {
		b.Run(w.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.f()
			}
		})
	}
}
