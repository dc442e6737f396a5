package planner_test

import (
	"cmp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/planner"
)

// Streams whose peaks come at different times share memory.
func TestJointPlansShareMemory(t *testing.T) {
	for joint, arenas := range map[bool]int64{true: 1, false: 2} {
		x := newPlanned(t, host(t), planner.Config{Confirm: 1, Joint: joint})
		x.bytes = true
		for range 3 {
			x.iterate(func() { x.run("a=2M free:a b=2M@1 free:b c=2M free:c") })
		}
		st := x.Stats()
		require.Equal(t, arenas, st.Arenas)
		require.Equal(t, arenas*2*mib, st.Height)
		require.EqualValues(t, 6, st.PlannedHits)
		require.Zero(t, st.Deviations)
		require.Equal(t, map[bool]int{true: 1, false: 2}[joint], x.Lanes())
	}
}

// A stream that takes memory over begins when the stream that had it is done.
func TestJointPlansWait(t *testing.T) {
	for name, tc := range map[string]struct{ usual, last, before, block string }{
		// Both streams have been in order before b takes a's place.
		"by the plan": {usual: "x=1M free:x y=1M@1 free:y a=2M free:a b=2M@1 free:b", before: "x=1M free:x y=1M@1 free:y a=2M", block: "a"},
		// z lives beyond its iteration. The plan has no wait for b.
		"for a late block": {usual: "y=512@1 b=2M@1 free:b z=2M free:z free:y", last: "y=512@1 b=2M@1 free:b z=2M free:y", before: "y=512@1", block: "z"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newPlanned(t, host(t), planner.Config{Confirm: 1, Joint: true})
			x.iterate(func() { x.run(tc.usual) })
			x.iterate(func() { x.run(cmp.Or(tc.last, tc.usual)) })
			require.NoError(t, x.BeginIteration())
			x.run(tc.before)
			gate, done := make(chan struct{}), atomic.Bool{}
			open := sync.OnceFunc(func() { close(gate) })
			defer open()
			require.NoError(t, x.stream(0).Launch(func() { <-gate }))
			had := x.live[tc.block]
			x.run("free:" + tc.block + " b=2M@1")
			require.Equal(t, had.Ptr(), x.live["b"].Ptr())
			require.NoError(t, x.stream(1).Launch(func() { done.Store(true) }))
			time.Sleep(5 * time.Millisecond)
			require.False(t, done.Load(), "work on b runs while its memory is in use")
			open()
			require.NoError(t, x.stream(1).Sync())
			require.True(t, done.Load())
			x.run("free:b")
			require.Zero(t, x.Stats().Deviations, x.Stats().LastDeviation)
			require.NoError(t, x.EndIteration())
		})
	}
}

// A stray lies where blocks of any stream were: its stream waits for all others.
func TestJointStraysWait(t *testing.T) {
	d := simdev.New(simdev.Config{Capacity: 64 * mib, ManualEvents: true})
	x := newPlanned(t, d, planner.Config{Confirm: 1, Joint: true})
	for range 2 {
		x.iterate(func() { x.run("a=20M b=20M free:a c=30M free:b free:c") })
	}
	x.iterate(func() {
		x.run("a=20M keep=21M") // from here on the lane knows that memory is short
		var order []int
		work := func(stream int) {
			require.NoError(t, x.stream(stream).Launch(func() { order = append(order, stream) }))
		}
		work(0)
		x.run("free:a b=10M@1")
		require.EqualValues(t, 2, x.Stats().Strays)
		work(1)
		d.CompleteStream(x.stream(1).Handle())
		require.Equal(t, []int{0, 1}, order)
		x.run("free:b")
	})
	x.run("free:keep")
}

// The recorded order has the streams, too.
func TestJointPlansDeviate(t *testing.T) {
	x := newPlanned(t, host(t), planner.Config{Confirm: 1, Joint: true})
	x.iterate(func() { x.run("a=2M b=2M@1 free:a free:b") })
	x.iterate(func() { x.run("a=2M b=2M free:a free:b") })
	st := x.Stats()
	require.EqualValues(t, 1, st.PlannedHits)
	require.EqualValues(t, 1, st.Deviations)
	require.Equal(t, "another stream was recorded", st.LastDeviation.Reason)
}

// Streams come and go. The memory of a joint plan waits for all of them when it goes back.
func TestJointStreamsComeAndGo(t *testing.T) {
	x := newPlanned(t, host(t), planner.Config{Confirm: 1, Joint: true})
	for range 20 {
		s, err := x.NewStream()
		require.NoError(t, err)
		for range 3 {
			x.iterate(func() {
				b, err := x.Alloc(mib, s)
				require.NoError(t, err)
				require.NoError(t, s.Launch(func() { time.Sleep(100 * time.Microsecond) }))
				require.NoError(t, s.Memset(b.Ptr(), 1, mib))
				require.NoError(t, x.Free(b))
			})
		}
		require.NoError(t, s.Close())
	}
	require.Equal(t, 1, x.Lanes())
	require.Positive(t, x.Stats().PlannedHits)
}
