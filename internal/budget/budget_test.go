package budget

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
)

// What exceeds the limit of a pool, or that of all, is refused and does not count.
func TestLimits(t *testing.T) {
	d := &Device{Limit: 100}
	var told []int64
	var lock *ReclaimLock
	lock = NewReclaimLock(1, func(n int64) {
		require.True(t, lock.TryLock(), "it is told without the lock")
		lock.UnlockUntold()
		told = append(told, n)
	})
	a, b := &Pool{Device: d, Limit: 60, Lock: lock}, &Pool{Device: d, Limit: math.MaxInt64, Lock: lock}
	require.ErrorIs(t, a.Take(61), device.ErrOutOfMemory)
	require.ErrorContains(t, a.Take(61), "61 more bytes would exceed the limit of 60 with 0 reserved")
	require.NoError(t, a.Take(60))
	a.Keep()
	require.ErrorIs(t, b.Take(41), device.ErrOutOfMemory)
	require.ErrorContains(t, b.Take(41), "41 more bytes would exceed the limit of 100 with 60 reserved by the allocator")
	require.NoError(t, b.Take(40))
	b.Cancel(20)
	require.EqualValues(t, 80, d.Held())
	room, others := b.Room()
	require.Equal(t, [2]int64{20, 60}, [2]int64{room, others})
	room, others = a.Room()
	require.Equal(t, [2]int64{0, 20}, [2]int64{room, others})
	require.Equal(t, [2]int64{60, 0}, [2]int64{a.Printed(), b.Printed()})

	lock.Lock()
	a.Return(50)
	require.Empty(t, told)
	lock.Unlock()
	require.Equal(t, []int64{50}, told)
	for range 2 {
		require.True(t, lock.TryLock())
		lock.Unlock()
	}
	require.Len(t, told, 1, "nothing went")
	require.Equal(t, [2]int64{10, 60}, [2]int64{a.Held(), a.Most()})
	require.EqualValues(t, 1, d.Returns.Load())
	require.NoError(t, d.Check([]*Pool{a, b}))
	Miscount(a, d, 1)
	require.ErrorContains(t, d.Check([]*Pool{a, b}), "C6: 30 bytes are counted against the limit of all pools, the pools hold 31")
	Miscount(nil, d, 1)
	require.NoError(t, d.Check([]*Pool{a, b}))
}

// A ceiling is a limit that comes and goes, also below what is held.
func TestCeiling(t *testing.T) {
	d := &Device{Limit: math.MaxInt64}
	p := &Pool{Device: d, Limit: math.MaxInt64}
	require.NoError(t, p.Take(50))
	require.Zero(t, p.Printed())
	for _, ceiling := range []int64{40, 50} {
		d.SetCeiling(ceiling)
		require.ErrorContains(t, p.Take(1), fmt.Sprintf("1 more bytes would exceed the limit of %d with 50", ceiling))
		room, _ := p.Room()
		require.Equal(t, [4]int64{ceiling - 50, ceiling, ceiling, 50 - ceiling}, [4]int64{room, p.Printed(), d.Bound(), p.Beyond()})
	}
	d.SetCeiling(60)
	require.Zero(t, p.Beyond())
	require.NoError(t, p.Take(10))
	require.Error(t, p.Take(1))
	d.SetCeiling(0)
	require.NoError(t, p.Take(1))
	d.Limit = 61
	d.SetCeiling(100)
	require.EqualValues(t, 61, d.Bound())
}

// The soft limit is the lower one of two, and refuses nothing.
func TestSoftLimit(t *testing.T) {
	d := &Device{Limit: math.MaxInt64}
	p := &Pool{Device: d, Limit: math.MaxInt64}
	require.NoError(t, p.Take(50))
	p.Keep()
	p.Cancel(20)
	type said struct {
		pressed    bool
		sufficient [2]int64 // with floors of 0 and of 70
	}
	for _, x := range []struct {
		soft, threshold int64
		said            said
	}{
		{0, 0, said{false, [2]int64{50, 70}}},
		{40, 0, said{false, [2]int64{40, 40}}},
		{39, 0, said{true, [2]int64{39, 39}}},
		{0, 39, said{true, [2]int64{39, 39}}},
		{60, 45, said{false, [2]int64{45, 45}}},
		{39, 60, said{true, [2]int64{39, 39}}},
		{60, 0, said{false, [2]int64{50, 60}}},
		{1, 0, said{true, [2]int64{1, 1}}},
		{0, 1, said{true, [2]int64{1, 1}}},
	} {
		p.Soft.Store(x.soft)
		p.Threshold.Store(x.threshold)
		require.Equal(t, x.said, said{p.Pressed(10), [2]int64{p.Sufficient(0), p.Sufficient(70)}}, "soft limit %d, threshold %d", x.soft, x.threshold)
	}
	require.NoError(t, p.Take(1000))
	room, _ := p.Room()
	require.EqualValues(t, math.MaxInt64, room)
}
