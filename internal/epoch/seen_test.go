package epoch

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

// TestSeen compares with the newest that was learnt of each slot: an epoch of the stream
// that had it last. What a stream proves of itself is no news, nor is what was known, nor
// what is of a stream that has lost its slot by now.
func TestSeen(t *testing.T) {
	const own, slots = 1, 4
	r := testkit.Rand(t)
	for range testkit.Rounds(50) {
		g := newRig(slots)
		var s Seen
		numbers := [slots]uint64{own, 2, 3, 4} // of the streams that have the slots
		next := uint64(slots + 1)
		var newest [slots]Past
		for range 100 {
			if r.IntN(10) == 0 {
				numbers[1+r.IntN(slots-1)] = next
				next++
			}
			past := func(slot int) Past {
				return Past{numbers[slot] - uint64(r.IntN(2)), uint64(r.IntN(30))}
			}
			var seen []Past
			for slot := range r.IntN(slots + 1) {
				seen = append(seen, past(slot))
			}
			slot := r.IntN(slots)
			point := past(slot)
			var want []Point
			learn := func(slot int, x Past) {
				was := newest[slot]
				if x.Stream == own || x.Stream < was.Stream || x.Stream == was.Stream && x.Epoch <= was.Epoch {
					return
				}
				if newest[slot] = x; x.Stream == numbers[slot] {
					want = append(want, Point{g.clocks[slot], x.Epoch})
				}
			}
			for slot, x := range seen {
				learn(slot, x)
			}
			learn(slot, point)
			at := func(slot uint32) (uint64, *Clock) { return numbers[slot], g.clocks[slot] }
			require.Equal(t, want, s.Learn(own, seen, uint32(slot), point, at))
			now := s.Now()
			require.Equal(t, newest[:len(now)], now)
			require.Equal(t, make([]Past, slots-len(now)), newest[len(now):])
		}
	}
}

// TestPatience: waits are bounded where the program wants it, and not else.
func TestPatience(t *testing.T) {
	ctx, cancel := Patience(0).Bound(context.Background())
	_, bounded := ctx.Deadline()
	require.False(t, bounded)
	cancel()
	require.NoError(t, ctx.Err())
	require.NoError(t, Patience(0).AtOnce().Err())

	began := time.Now()
	ctx, cancel = Patience(time.Hour).Bound(context.Background())
	end, bounded := ctx.Deadline()
	require.True(t, bounded)
	require.False(t, end.Before(began.Add(time.Hour)))
	cancel()
	require.Error(t, ctx.Err())
	ctx = Patience(1).AtOnce()
	require.Error(t, ctx.Err())
	require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded)
}

// TestTrust: after each wait that was given up, twice as many are left out.
func TestTrust(t *testing.T) {
	var x Trust
	for _, out := range []int{0, 1, 2, 4, 8} {
		for range out {
			require.False(t, x.Try())
		}
		require.True(t, x.Try())
		require.True(t, x.Try(), "it is not given up yet")
		x.Failed()
	}
}
