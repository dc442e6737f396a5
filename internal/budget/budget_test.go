package budget

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/device"
)

// What exceeds the limit of a pool, or that of all, is refused and does not count.
func TestLimits(t *testing.T) {
	d := &Device{Limit: 100}
	var told []int64
	lock := &ReclaimLock{Tell: func(n int64) { told = append(told, n) }}
	a, b := &Pool{Device: d, Limit: 60, Lock: lock}, &Pool{Device: d, Limit: math.MaxInt64, Lock: lock}
	require.ErrorIs(t, a.Take(61), device.ErrOutOfMemory)
	require.NoError(t, a.Take(60))
	a.Keep()
	require.ErrorIs(t, b.Take(41), device.ErrOutOfMemory)
	require.NoError(t, b.Take(30))
	b.Cancel(10)
	require.EqualValues(t, 80, d.Held())
	room, others := b.Room()
	require.Equal(t, [2]int64{20, 60}, [2]int64{room, others})
	require.Equal(t, [2]int64{60, 0}, [2]int64{a.Printed(), b.Printed()})

	lock.Lock()
	a.Return(50)
	require.Empty(t, told)
	lock.Unlock()
	require.Equal(t, []int64{50}, told)
	require.Equal(t, [2]int64{10, 60}, [2]int64{a.Held(), a.Most()})
	require.EqualValues(t, 1, d.Returns.Load())
	require.NoError(t, d.Check([]*Pool{a, b}))
	Miscount(a, d, 1)
	require.ErrorContains(t, d.Check([]*Pool{a, b}), "C6")
}

func TestLockUntil(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	lock := &ReclaimLock{}
	require.True(t, lock.LockUntil(ctx))
	cancel()
	require.False(t, lock.LockUntil(ctx))
	lock.Unlock()
	require.True(t, lock.LockUntil(ctx))
}
