package drivertest

import (
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/testkit"
)

// testPools asks stream-ordered pools for memory, and for what they say of it.
func testPools(f *fixture) {
	pools, ok := f.Driver.(device.NativePools)
	if !ok {
		f.t.Skip("the device has no pools")
	}
	t, s := f.t, f.stream()
	standard, err := pools.DefaultNativePool()
	if errors.Is(err, cupool.ErrNotSupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	now, err := pools.CurrentNativePool()
	require.NoError(t, err)
	require.Equal(t, standard, now)
	pool, err := pools.NewNativePool(device.PoolConfig{})
	require.NoError(t, err)
	get := func(a device.PoolAttribute) uint64 {
		v, err := pools.NativePoolAttribute(pool, a)
		require.NoError(t, err)
		return v
	}
	for a, v := range map[device.PoolAttribute]uint64{
		device.PoolReuseFollowEvents: 0, device.PoolReuseOpportunistic: 0, device.PoolReuseInternalDependency: 0, device.PoolReleaseThreshold: 3 << 32,
	} {
		require.NoError(t, pools.SetNativePoolAttribute(pool, a, v))
		require.Equal(t, v, get(a), a)
	}

	const n = 4 * mib
	alloc := func(size int64, h device.Pool) cupool.Ptr {
		p, err := pools.AllocAsync(size, h, s)
		require.NoError(t, err)
		require.NoError(t, f.Memset(p, 5, size, s), "the device knows the address")
		require.Equal(t, byte(5), f.read(p+cupool.Ptr(size-1), 1, s)[0])
		return p
	}
	p, q := alloc(n, pool), alloc(n, pool)
	require.ErrorIs(t, f.Memset(p, 5, 1<<40, s), cupool.ErrInvalidRange)
	require.ErrorIs(t, f.MemFree(p), cupool.ErrInvalidRange, "it is a pool's")
	for _, a := range []device.PoolAttribute{device.PoolUsedCurrent, device.PoolUsedHigh, device.PoolReservedCurrent, device.PoolReservedHigh} {
		require.GreaterOrEqual(t, get(a), uint64(2*n), a)
	}
	require.NoError(t, pools.FreeAsync(p, s))
	require.NoError(t, pools.FreeAsync(q, s))
	require.NoError(t, f.SyncStream(s))
	require.Zero(t, get(device.PoolUsedCurrent))
	require.GreaterOrEqual(t, get(device.PoolUsedHigh), uint64(2*n))
	require.NotZero(t, get(device.PoolReservedCurrent), "below the threshold")
	require.NoError(t, pools.TrimNativePool(pool, 0))
	require.Zero(t, get(device.PoolReservedCurrent))
	require.NoError(t, pools.SetNativePoolAttribute(pool, device.PoolUsedHigh, 0))
	require.Zero(t, get(device.PoolUsedHigh))

	access, err := pools.NativePoolAccess(pool, 0)
	require.NoError(t, err)
	require.Equal(t, device.ReadWriteAccess, access)
	require.Error(t, pools.SetNativePoolAccess(pool, 0, device.NoAccess), "its own device")
	require.NoError(t, pools.SetNativePoolAccess(pool, 0, device.ReadWriteAccess))
	require.Error(t, pools.SetNativePoolAccess(pool, 99, device.ReadWriteAccess), "no device")

	require.NoError(t, pools.SetCurrentNativePool(pool))
	p = alloc(512, 0)
	require.NotZero(t, get(device.PoolUsedCurrent), "0 is the current pool")
	require.NoError(t, pools.FreeAsync(p, s))
	require.NoError(t, f.SyncStream(s))
	require.NoError(t, pools.SetCurrentNativePool(standard))
	require.NoError(t, pools.DestroyNativePool(pool))
	require.ErrorIs(t, pools.DestroyNativePool(pool), cupool.ErrInvalidHandle)
	require.ErrorIs(t, pools.DestroyNativePool(standard), cupool.ErrInvalidHandle)
	require.ErrorIs(t, testkit.Second(pools.AllocAsync(1<<50, 0, s)), cupool.ErrOutOfMemory)
	require.ErrorIs(t, testkit.Second(pools.AllocAsync(0, 0, s)), cupool.ErrInvalidRange)
}
