package faults_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestOlderFaults makes every driver call fail in turn of programs whose chunks move from a
// stream that is at work to another one and back, with ranges that are stitched of them.
func TestOlderFaults(t *testing.T) {
	broken := errors.New("broken")
	for _, order := range []cupool.IdleOrder{cupool.OwnerOrder, cupool.DeviceOrder} {
		for _, cause := range []error{broken, cupool.ErrOutOfMemory, cupool.ErrDeviceLost} {
			t.Run(order.String()+"/"+cause.Error(), func(t *testing.T) {
				clean := &older{t: t}
				clean.run(order)
				require.Positive(t, clean.moves, "no chunk moves")
				require.Positive(t, clean.stitches, "nothing is stitched")
				every := testkit.Choose(1, 17)
				if testkit.Race || lock.Invariants {
					every *= 5
				}
				for n := 1 + testkit.Rand(t).IntN(every); n <= clean.calls; n += every {
					x := &older{t: t, fail: n, err: fmt.Errorf("call %d: %w", n, cause)}
					x.run(order)
				}
			})
		}
	}
}

// older is one run of the program.
type older struct {
	t    *testing.T
	fail int // the call that does; 0: none
	err  error

	d                      *simdev.Device
	f                      *conformance.Failing
	c                      *cupool.Pool
	live                   int64
	calls, moves, stitches int
}

func (x *older) run(order cupool.IdleOrder) {
	t := x.t
	x.d = simdev.New(simdev.Config{Capacity: 1 << 30, ManualEvents: true, IdleEvents: true, FreshAddresses: true})
	x.f = conformance.NewFailing(x.d)
	x.c = pooltest.Open(t, cupool.Config{Driver: x.f, Backing: cupool.BackingVMM, IdleOrder: order, GrowWait: time.Microsecond})
	busy, idle, side := pooltest.NewStream(t, x.c), pooltest.NewStream(t, x.c), pooltest.NewStream(t, x.c)
	before := x.f.Calls("")
	if x.fail > 0 {
		x.f.FailNth("", x.fail, x.err)
	}

	step := func(n int) {
		for range n {
			x.d.CompleteNext(busy.Handle())
		}
	}
	for range 2 {
		var blocks []cupool.Block
		for range 8 {
			blocks = append(blocks, x.alloc(36<<20, busy))
		}
		for i, b := range blocks {
			if i != 2 && i != 5 {
				x.free(b)
			}
		}
		x.free(x.alloc(100<<20, busy)) // stitched, of chunks that the work before may use
		x.free(blocks[2])
		x.free(blocks[5], side)
		step(9)
		a, b := x.alloc(40<<20, idle), x.alloc(60<<20, idle)
		step(4)
		c := x.alloc(120<<20, idle)
		x.d.CompleteStream(side.Handle())
		x.free(a)
		x.free(b)
		x.free(x.alloc(150<<20, busy)) // also of what comes back
		x.free(c, busy)
		step(20)
		x.free(x.alloc(200<<20, nil))
	}
	st := x.c.Stats()
	x.moves, x.stitches = int(st.Moves), int(st.Stitches)
	_, err := x.c.Trim(0)
	x.only("trim", err)
	x.only("close", idle.Close())
	x.calls = x.f.Calls("") - before
	x.f.Heal()
	if err := x.c.Close(); x.d != nil && !errors.Is(x.err, cupool.ErrDeviceLost) {
		require.NoError(t, err, "call %d", x.fail)
		require.Empty(t, x.f.Leaks(), "call %d", x.fail)
		require.NoError(t, x.d.Close(), "call %d: the device is fine", x.fail)
	}
}

// alloc allocates a block, and submits work on it.
func (x *older) alloc(size int64, s *cupool.Stream) cupool.Block {
	b, err := x.c.Alloc(size, s)
	if err == nil {
		x.live++
	}
	x.check("alloc", err)
	if err == nil {
		if s == nil {
			s = x.c.DefaultStream()
		}
		x.only("memset", s.Memset(b.Ptr(), 1, b.Size()))
	}
	return b
}

// free frees a block that other streams have used.
func (x *older) free(b cupool.Block, users ...*cupool.Stream) {
	if b.IsEmpty() {
		return
	}
	for _, s := range users {
		x.only("memset", s.Memset(b.Ptr(), 1, b.Size()))
		require.NoError(x.t, x.c.RecordStream(b, s))
	}
	require.NoError(x.t, x.c.Free(b), "call %d", x.fail)
	x.live--
	x.check("free", nil)
}

// only fails the test for an error that nothing explains.
func (x *older) only(what string, err error) {
	if err != nil && (x.err == nil || !errors.Is(err, x.err)) && !errors.Is(err, cupool.ErrOutOfMemory) {
		require.NoError(x.t, err, "call %d: %s", x.fail, what)
	}
}

// check is only, and looks at the books.
func (x *older) check(what string, err error) {
	x.only(what, err)
	require.NoError(x.t, x.c.Check(), "call %d: after %s", x.fail, what)
	st := x.c.Stats()
	require.Equal(x.t, x.live, st.All.Allocation.Current, "call %d: after %s", x.fail, what)
	held := x.f.Held()
	require.GreaterOrEqual(x.t, held, st.All.ReservedBytes.Current, "call %d: after %s", x.fail, what)
}
