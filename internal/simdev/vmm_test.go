package simdev_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/simdev"
)

// Access is charged by the mapping and by the byte, an end of mappings by the mapping.
func TestVMMCosts(t *testing.T) {
	d := simdev.New(simdev.Config{Capacity: 4 * gran})
	p, err := d.AddressReserve(1 << 50)
	require.NoError(t, err)
	a, err := d.MemCreate(gran)
	require.NoError(t, err)
	b, err := d.MemCreate(2 * gran)
	require.NoError(t, err)
	require.NoError(t, d.MemMap(p, 2*gran, b))
	require.NoError(t, d.MemMap(p+2*gran, gran, a))
	charged := func(call error) time.Duration {
		require.NoError(t, call)
		return d.ModelledTotal()
	}
	was := charged(nil)
	now := charged(d.MemSetAccess(p, 3*gran))
	require.Equal(t, 2*20*time.Microsecond+33*time.Microsecond*3*gran/gib, now-was)
	require.Equal(t, 2*14*time.Microsecond, charged(d.MemUnmap(p, 3*gran))-now)
	require.NoError(t, d.AddressFree(p, 1<<50))
	again, err := d.AddressReserve(gran)
	require.NoError(t, err)
	require.Equal(t, p, again)
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
