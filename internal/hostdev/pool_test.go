package hostdev_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/hostdev"
)

func openPools(t *testing.T) (d *hostdev.Device, s, u device.Stream) {
	t.Helper()
	d, err := hostdev.Open(hostdev.Config{Capacity: 64 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	s, err = d.NewStream()
	require.NoError(t, err)
	u, err = d.NewStream()
	require.NoError(t, err)
	return d, s, u
}

// TestPoolReuse: which policies let another stream have what a busy one freed.
func TestPoolReuse(t *testing.T) {
	for name, tc := range map[string]struct {
		opportunistic, internal uint64
		busy, reused            bool
	}{
		"none":                      {0, 0, false, false},
		"opportunistic, done":       {1, 0, false, true},
		"opportunistic, busy":       {1, 0, true, false},
		"internal dependency, busy": {0, 1, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			d, s, u := openPools(t)
			h, err := d.NewNativePool(device.PoolConfig{})
			require.NoError(t, err)
			require.NoError(t, d.SetNativePoolAttribute(h, device.PoolReuseOpportunistic, tc.opportunistic))
			require.NoError(t, d.SetNativePoolAttribute(h, device.PoolReuseInternalDependency, tc.internal))
			p, err := d.AllocAsync(1<<20, h, s)
			require.NoError(t, err)
			release := func() {}
			if tc.busy {
				release = hold(t, d, s)
				require.NoError(t, d.Memset(p, 1, 1<<20, s))
			}
			require.NoError(t, d.FreeAsync(p, s))
			q, err := d.AllocAsync(1<<20, h, u)
			require.NoError(t, err)
			require.Equal(t, tc.reused, p == q)
			require.NoError(t, d.Memset(q, 2, 1<<20, u))
			release()
			require.NoError(t, d.SyncStream(s))
			got := make([]byte, 1<<20)
			require.NoError(t, d.CopyOut(got, q, u))
			require.Equal(t, byte(2), got[77], "the other stream waited")
			require.NoError(t, d.FreeAsync(q, u))
			own, err := d.AllocAsync(1<<20, h, u)
			require.NoError(t, err)
			require.Equal(t, q, own, "a stream has its own at once")
		})
	}
}

// TestPoolThreshold: a synchronization gives back what is beyond, and a full
// device everything that is done.
func TestPoolThreshold(t *testing.T) {
	d, s, _ := openPools(t)
	h, err := d.NewNativePool(device.PoolConfig{})
	require.NoError(t, err)
	reserved := func() uint64 {
		v, err := d.NativePoolAttribute(h, device.PoolReservedCurrent)
		require.NoError(t, err)
		return v
	}
	cycle := func() {
		p, err := d.AllocAsync(8<<20, h, s)
		require.NoError(t, err)
		require.NoError(t, d.FreeAsync(p, s))
		require.NoError(t, d.SyncStream(s))
	}
	cycle()
	require.Zero(t, reserved())
	require.NoError(t, d.SetNativePoolAttribute(h, device.PoolReleaseThreshold, 8<<20))
	cycle()
	require.EqualValues(t, 8<<20, reserved())
	p, err := d.AllocAsync(60<<20, 0, s)
	require.NoError(t, err, "the other pool makes room")
	require.Zero(t, reserved())
	_, err = d.AllocAsync(60<<20, h, s)
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	require.NoError(t, d.FreeAsync(p, s))
	require.ErrorIs(t, d.FreeAsync(p, s), device.ErrInvalidRange)
	require.ErrorIs(t, d.Memset(p, 0, 1, s), device.ErrInvalidRange)
}

// TestPoolLife: a pool is destroyed while it is the current one and its memory is live.
func TestPoolLife(t *testing.T) {
	d, s, _ := openPools(t)
	first, err := d.DefaultNativePool()
	require.NoError(t, err)
	h, err := d.NewNativePool(device.PoolConfig{MaxSize: 4 << 20})
	require.NoError(t, err)
	require.NoError(t, d.SetCurrentNativePool(h))
	p, err := d.AllocAsync(3<<20, 0, s)
	require.NoError(t, err)
	_, err = d.AllocAsync(3<<20, 0, s)
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	require.NoError(t, d.DestroyNativePool(h))
	now, err := d.CurrentNativePool()
	require.NoError(t, err)
	require.Equal(t, first, now)
	require.NoError(t, d.Memset(p, 1, 3<<20, s), "it is still there")
	require.NoError(t, d.FreeAsync(p, s))
	require.NoError(t, d.SyncStream(s))
	require.Zero(t, d.Stats().UsedBytes)
	_, err = d.AllocAsync(1, h, s)
	require.ErrorIs(t, err, device.ErrInvalidHandle)
	_, err = d.NewNativePool(device.PoolConfig{Location: device.Location{Kind: 3}})
	require.ErrorIs(t, err, device.ErrNotSupported)
}

// TestPoolShared has another device map what one exported.
func TestPoolShared(t *testing.T) {
	d, s, _ := openPools(t)
	h, err := d.NewNativePool(device.PoolConfig{Shareable: true})
	if err != nil {
		require.ErrorIs(t, err, device.ErrNotSupported)
		t.Skip(err)
	}
	fd, err := d.ExportNativePool(h)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "pool")
	defer f.Close()
	_, err = d.AllocAsync(5000, h, s)
	require.NoError(t, err)
	p, err := d.AllocAsync(5000, h, s)
	require.NoError(t, err)
	require.NoError(t, d.Memset(p, 7, 5000, s))
	require.NoError(t, d.SyncStream(s))
	data, err := d.ExportNativePointer(p)
	require.NoError(t, err)

	o, os, _ := openPools(t)
	oh, err := o.ImportNativePool(int(f.Fd()))
	require.NoError(t, err)
	_, err = o.AllocAsync(1, oh, os)
	require.ErrorIs(t, err, device.ErrNotSupported)
	q, err := o.ImportNativePointer(oh, data)
	require.NoError(t, err)
	got := make([]byte, 5000)
	require.NoError(t, o.CopyOut(got, q, os))
	require.Equal(t, byte(7), got[4999])
	require.NoError(t, o.FreeAsync(q, os))
	require.NoError(t, o.SyncStream(os))
	require.ErrorIs(t, o.Memset(q, 1, 1, os), device.ErrInvalidRange)
	require.NoError(t, o.DestroyNativePool(oh))
	require.Zero(t, o.Stats().UsedBytes)

	for name, err := range map[string]error{
		"an imported pool":   func() error { _, err := o.ExportNativePool(oh); return err }(),
		"one not shareable":  func() error { _, err := d.ExportNativePool(0); return err }(),
		"a pointer of none":  func() error { _, err := d.ExportNativePointer(64); return err }(),
		"to a pool's own":    func() error { _, err := d.ImportNativePointer(h, data); return err }(),
		"a broken pointer":   func() error { _, err := d.ImportNativePointer(h, device.PoolPointer{1}); return err }(),
		"a descriptor of -1": func() error { _, err := d.ImportNativePool(-1); return err }(),
	} {
		require.Error(t, err, name)
	}
}
