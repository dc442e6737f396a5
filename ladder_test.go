package cupool_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/snapshot"
)

const mib = 1 << 20

// Each rung of the ladder serves in its turn. The device has 40 MiB.
func TestLadder(t *testing.T) {
	type calls map[string]int
	for name, tc := range map[string]struct {
		before, ops, want string
		calls             calls // made by ops
		retries           int64
		change            func(*cupool.Config)
		capacity          int64 // 0: 40 MiB
		shrink            int64 // another program takes that much of the device before ops
	}{
		"flush magazines": {
			before: "a=700K b=700K free:a free:b a=700K b=700K free:a free:b a=700K b=700K free:a free:b",
			ops:    "c=1M", want: "0 small: [Live 1M][Free 1M]",
			calls: calls{}, change: pooltest.WithMagazines,
		},
		"collect what streams are done with": {
			before: "a=20M busy:1 free:a@1 idle:1",
			ops:    "b=20M", want: "0 large: [Live 20M]",
			calls: calls{"QueryEvent": 1},
		},
		"completed events of other streams' blocks, which are left to them": {
			before: "a=20M busy:1 free:a@1 b=20M@2 busy:1 free:b@1 idle:1",
			ops:    "c=20M@2", want: "0 large: [Pending 20M]; 2 large: [Live 20M]",
			calls: calls{"QueryEvent": 2},
		},
		"completed events of any stream, where memory is short": {
			before: "a=20M busy:1 free:a@1 b=20M@2 idle:1",
			ops:    "c=20M@2", want: "2 large: [Live 20M]; 2 large: [Live 20M]",
			calls:   calls{"QueryEvent": 1, "MemFree": 1, "MemAlloc": 2},
			retries: 1,
		},
		"release idle segments": { // it would grow beyond what it ever had
			before: "a=300M free:a",
			ops:    "b=302M", want: "0 large: [Live 302M]",
			calls: calls{"MemFree": 1, "MemAlloc": 1}, capacity: 1 << 30,
		},
		"not while it is small": {
			before: "a=20M free:a",
			ops:    "b=22M", want: "0 large: [Free 20M]; 0 large: [Live 22M]",
			calls: calls{"MemAlloc": 1}, capacity: 1 << 30,
		},
		"not below what it once had": {
			before: "a=300M b=20M free:b trim:300M free:a",
			ops:    "c=20M@1", want: "0 large: [Free 300M]; 1 large: [Live 20M]",
			calls: calls{"MemAlloc": 1, "NewStream": 1}, capacity: 1 << 30,
		},
		"grow": {
			before: "a=20M",
			ops:    "b=20M", want: "0 large: [Live 20M]; 0 large: [Live 20M]",
			calls: calls{"MemAlloc": 1},
		},
		"grow by what is needed": {
			before: "a=30M",
			ops:    "b=3M", want: "0 large: [Live 30M]; 0 large: [Live 4M]",
			calls: calls{"MemAlloc": 2},
		},
		"wait for one pending block": {
			before: "a=20M b=20M busy:1 busy:2 free:a@1 free:b@2",
			ops:    "c=20M", want: "0 large: [Live 20M]; 0 large: [Pending 20M]",
			calls:   calls{"MemAlloc": 1, "SyncEvent": 1, "QueryEvent": 5},
			retries: 1,
		},
		"the smallest that suffices": {
			before: "a=22M b=12M c=6M busy:1 busy:2 busy:3 free:a@1 free:b@2 free:c@3",
			ops:    "d=12M", want: "0 large: [Pending 22M]; 0 large: [Live 12M]; 0 large: [Pending 6M]",
			retries: 1,
		},
		"but not one that is live": {
			before: "a=10M b=12M c=18M busy:1 busy:2 use:a@1 free:b@1 free:c@2",
			ops:    "d=10M", want: "0 large: [Live 10M]; 0 large: [Live 10M][Free 2M]; 0 large: [Pending 18M]",
			retries: 1,
		},
		"with all its users": {
			before: "a=40M busy:1 busy:2 use:a@1 use:a@2 free:a",
			ops:    "b=40M", want: "0 large: [Live 40M]",
			calls:   calls{"MemAlloc": 1, "SyncEvent": 2, "QueryEvent": 4},
			retries: 1,
		},
		"release cached memory": { // of another stream
			before: "a=20M@1 b=20M free:b trim:20M free:a", shrink: 20 * mib,
			ops: "c=20M", want: "0 large: [Live 20M]",
			calls:   calls{"MemAlloc": 2, "MemFree": 1},
			retries: 1,
		},
		"largest first and no more than needed": {
			before: "a=10M@1 b=12M@1 c=14M@1 y=20M free:y trim:36M free:a free:b free:c", shrink: 24 * mib, capacity: 60 * mib,
			ops: "e=10M", want: "1 large: [Free 10M]; 1 large: [Free 12M]; 0 large: [Live 10M]",
			calls:   calls{"MemAlloc": 2, "MemFree": 1},
			retries: 1,
		},
		"wait for all pending blocks": { // which merge
			before: "a=9M b=9M x=20M busy:1 busy:2 free:a@1 free:b@2",
			ops:    "c=15M", want: "0 large: [Live 15M][Free 5M]; 0 large: [Live 20M]",
			retries: 1,
		},
		"and of other streams": {
			before: "a=20M@1 x=20M busy:2 free:a@2",
			ops:    "c=20M", want: "0 large: [Live 20M]; 0 large: [Live 20M]",
			retries: 1,
		},
		"and their magazines": {
			before: "b=38M a=1M@1 free:b trim:2M free:a a=1M@1 free:a a=1M@1 free:a",
			ops:    "c=40M", want: "0 large: [Live 40M]",
			calls:   calls{"MemAlloc": 2, "MemFree": 1},
			retries: 1, change: pooltest.WithMagazines,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, d := pooltest.New(t, cmp.Or(tc.capacity, 40*mib), func(cfg *cupool.Config) {
				if tc.change != nil {
					tc.change(cfg)
				}
			})
			x := pooltest.NewScript(t, c, d).Run(tc.before)
			before := map[string]int{}
			for _, call := range allCalls {
				before[call] = d.Count(call)
			}
			d.Capacity -= tc.shrink
			require.Equal(t, tc.want, x.Run(tc.ops).Layout())
			require.Equal(t, tc.retries, c.Stats().Retries)
			for _, call := range allCalls {
				if tc.calls != nil {
					require.Equal(t, tc.calls[call], d.Count(call)-before[call], call)
				}
			}
		})
	}
}

var allCalls = []string{"MemAlloc", "MemFree", "MemInfo", "NewStream", "DestroyStream", "SyncStream",
	"NewEvent", "DestroyEvent", "RecordEvent", "QueryEvent", "SyncEvent", "StreamWaitEvent"}

// A program that repeats itself comes to rest, though each round first grows
// beyond what it had with segments of its own idle.
func TestReleasedSegmentsThatComeBack(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d)
	var rounds []int
	for range 20 {
		before := d.Count("MemAlloc") + d.Count("MemFree")
		x.Run("a=20M free:a b=30M free:b c=12M@1 free:c d=40M free:d")
		rounds = append(rounds, d.Count("MemAlloc")+d.Count("MemFree")-before)
	}
	require.Zero(t, rounds[len(rounds)-1], "calls of the device, by round: %v", rounds)
	require.LessOrEqual(t, c.Stats().All.ReservedBytes.Current, int64(102*mib))
}

// Where the device refuses, a heap serves from a segment that it spares before anything
// is given back.
func TestSparedSegmentServesWithoutMemory(t *testing.T) {
	c, d := pooltest.New(t, 200*mib)
	x := pooltest.NewScript(t, c, d).Run("a=100M free:a stays=4M")
	for range 4 { // stays has the first segment, and has lived long
		x.Run("b=100M free:b")
	}
	asked := d.Count("MemAlloc")
	x.Run("t=4M")
	require.Equal(t, "0 large: [Live 4M][Live 4M][Free 92M]; 0 large: [Free 100M]", x.Layout())
	require.Greater(t, d.Count("MemAlloc"), asked, "it should have had a segment of its own")
	require.Zero(t, c.Stats().Retries)
}

// The garbage collector's cleanups give blocks back when nothing else does.
func TestLadderCollectsGarbage(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the ladder is the first to collect
	for i := range 20 {
		c, _ := pooltest.New(t, 20*mib)
		func() {
			blocks := []int64{10, 1}[i%2]
			for range blocks {
				b, err := c.Alloc(20*mib/blocks, nil)
				require.NoError(t, err)
				runtime.AddCleanup(&[100]byte{}, c.FreeLater, b)
			}
		}()
		b, err := c.Alloc(20*mib, nil)
		require.NoError(t, err)
		require.EqualValues(t, 1, c.Stats().Retries)
		require.NoError(t, c.Free(b))
		require.NoError(t, c.Close())
	}
}

// TestLadderCollectsAPart: what a cleanup gives back serves where it lies, also beside a
// block that is live, and on any backing.
func TestLadderCollectsAPart(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the ladder is the first to collect
	pooltest.Backings(t, 20*mib, func(t *testing.T, c *cupool.Pool) {
		stays := pooltest.Alloc(t, c, 10*mib-512, nil)
		func() { runtime.AddCleanup(&[100]byte{}, c.FreeLater, pooltest.Alloc(t, c, 10*mib-512, nil)) }()
		b := pooltest.Alloc(t, c, 9*mib, nil)
		require.NoError(t, c.Free(b))
		require.NoError(t, c.Free(stays))
		require.NoError(t, c.Close())
	})
}

// TestLadderSearchesAfterWaits: what an allocation has waited for serves it, also where another
// goroutine was faster to find out that the work is done.
func TestLadderSearchesAfterWaits(t *testing.T) {
	for name, pending := range map[string][]int64{"one block": {10*mib - 512}, "all blocks": {5*mib - 512, 5*mib - 512}} {
		t.Run(name, func(t *testing.T) {
			c, d := pooltest.New(t, 20*mib)
			side := pooltest.NewStream(t, c)
			live := []cupool.Block{pooltest.Alloc(t, c, 10*mib-512, nil)}
			d.Busy(side)
			for _, size := range pending {
				live = append(live, pooltest.Alloc(t, c, size, nil))
			}
			for _, b := range live[1:] {
				require.NoError(t, c.FreeOn(b, side))
			}
			d.Hook = func(call string) {
				if call == "SyncEvent" { // as another goroutine might, while this one waits
					d.Idle(side)
					require.NoError(t, side.Sync())
				}
			}
			b := pooltest.Alloc(t, c, 9*mib, nil)
			require.Equal(t, 1, d.Count("SyncEvent"))
			require.NoError(t, c.Free(b))
			require.NoError(t, c.Free(live[0]))
			require.NoError(t, c.Close())
		})
	}
}

func TestLadderAsksTheProgram(t *testing.T) {
	var c *cupool.Pool
	var cache []cupool.Block
	var asked []int64
	c, _ = pooltest.New(t, 40*mib, func(cfg *cupool.Config) {
		cfg.OnOutOfMemory = func(requested int64) bool {
			asked = append(asked, requested)
			for _, b := range cache {
				require.NoError(t, c.Free(b), "it may use the allocator")
			}
			freed := len(cache) > 0
			cache = nil
			return freed
		}
	})
	for range 2 {
		b := pooltest.Alloc(t, c, 20*mib, nil)
		cache = append(cache, b)
	}
	b := pooltest.Alloc(t, c, 40*mib-7, nil)
	require.Equal(t, []int64{40*mib - 7}, asked)
	require.EqualValues(t, 1, c.Stats().Retries)

	_, err := c.Alloc(mib, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.Equal(t, []int64{40*mib - 7, mib}, asked, "asked once each")
	require.NoError(t, c.Free(b))
	_, err = c.Alloc(mib, nil)
	require.NoError(t, err, "later allocations go on working")
	require.EqualValues(t, 1, c.Stats().OOMs)
}

// TestNothingTakenIsNotMissed: a stream of which others would have taken memory, but found none
// idle, has lost nothing, and gives when it has some.
func TestNothingTakenIsNotMissed(t *testing.T) {
	c, _ := pooltest.New(t, 4<<30)
	owner, taker := pooltest.NewStream(t, c), pooltest.NewStream(t, c)
	b := pooltest.Alloc(t, c, 300*mib, owner)
	for range 10 {
		pooltest.Alloc(t, c, 20*mib, taker)
		pooltest.Alloc(t, c, 20*mib, owner)
	}
	require.NoError(t, c.Free(b))
	require.Equal(t, b.Ptr(), pooltest.Alloc(t, c, 300*mib, taker).Ptr())
	require.EqualValues(t, 1, c.Stats().Moves)
}

// TestGrownForOthers: a request that misses and is then served by memory that another one got is a hit.
func TestGrownForOthers(t *testing.T) {
	var c *cupool.Pool
	first := true
	c, _ = pooltest.New(t, 1<<30, func(cfg *cupool.Config) {
		cfg.BeforeGrow = func(int64) {
			if first {
				first = false
				pooltest.Alloc(t, c, 3*mib, nil)
			}
		}
	})
	pooltest.Alloc(t, c, 5*mib, nil)
	st := c.Stats()
	require.Equal(t, [3]int64{1, 0, 1}, [3]int64{st.Grown, st.Mapped, st.Hits})
	require.EqualValues(t, 1, st.DriverAllocs)
}

func TestLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  cupool.Config
		want int64 // MiB that can be reserved of 100
	}{
		"none":         {cupool.Config{}, 100},
		"bytes":        {cupool.Config{Limit: 30 * mib}, 30},
		"fraction":     {cupool.Config{Fraction: 0.5}, 50},
		"the smaller":  {cupool.Config{Limit: 30 * mib, Fraction: 0.5}, 30},
		"or the other": {cupool.Config{Limit: 60 * mib, Fraction: 0.5}, 50},
		"all of it":    {cupool.Config{Fraction: 1}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			d := pooltest.NewDriver(100 * mib)
			tc.cfg.Driver = d
			c, err := cupool.New(tc.cfg)
			require.NoError(t, err)
			_, err = c.Alloc(tc.want*mib+1, nil)
			require.ErrorIs(t, err, cupool.ErrOutOfMemory)
			b := pooltest.Alloc(t, c, tc.want*mib, nil)
			_, err = c.Alloc(1, nil)
			require.ErrorIs(t, err, cupool.ErrOutOfMemory, "hard")
			require.NoError(t, c.Free(b))
			_, err = c.Alloc(20*mib, nil)
			require.NoError(t, err, "the cache is given back below the limit")
			require.NoError(t, c.Check())
		})
	}
}

func TestOOMError(t *testing.T) {
	c, d := pooltest.New(t, 100*mib, func(cfg *cupool.Config) { cfg.Limit = 80 * mib })
	x := pooltest.NewScript(t, c, d).Run("a=20M b=6M c=14M e=10M busy:1 use:e@1 free:b")
	d.Fail("SyncEvent", errors.New("no luck"))
	x.Run("free:e")
	_, err := c.Alloc(60*mib-1, x.Stream("0"))
	var oom *cupool.OOMError
	require.ErrorAs(t, err, &oom)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.ErrorContains(t, oom.Cause, "exceed the limit")
	require.Same(t, oom, c.LastOOM())
	require.Equal(t, c.Snapshot(), *oom.Snapshot)
	got := *oom
	got.Cause, got.Snapshot = nil, nil
	require.EqualExportedValues(t, cupool.OOMError{
		Device: "counting", Requested: 60*mib - 1, Rounded: 60 * mib, Segment: 60 * mib,
		Live: 34 * mib, Pending: 10 * mib, Cached: 6 * mib, LargestFree: 6 * mib, Reserved: 50 * mib,
		DeviceFree: 50 * mib, DeviceTotal: 100 * mib, Limit: 80 * mib,
		Hint: "free at least 30 MiB of the 34 MiB that the program holds", Reason: "too much",
		Settings: []string{"smaller batches", "OnOutOfMemory: a function that frees what can be made again"},
		Lines:    []snapshot.Line{{Blocks: 2, Bytes: 34 * mib}},
		Table:    []snapshot.Holder{{Blocks: 2, Live: 34 * mib, Pending: 10 * mib, Cached: 6 * mib}},
	}, got)
	require.Equal(t, "cupool: out of memory on counting: 60 MiB requested (block 60 MiB, segment 60 MiB); "+
		"live 34 MiB, pending 10 MiB, cached 6 MiB (largest free 6 MiB, fragmentation 0 %), reserved 50 MiB of a limit of 80 MiB; "+
		"device has 50 MiB free of 100 MiB; free at least 30 MiB of the 34 MiB that the program holds\n"+
		"\tcause: the program holds 34 MiB of 100 MiB and asks for 60 MiB more\n"+
		"\theld: 2 blocks, 34 MiB, not recorded where\n"+
		"\tto see which lines hold memory, set Config.History or call Pool.StartHistory\n"+
		"\twould have helped: smaller batches\n"+
		"\twould have helped: OnOutOfMemory: a function that frees what can be made again\n"+
		"\t      live    pending     cached\n"+
		"\t    34 MiB     10 MiB      6 MiB  stream 0", err.Error())
}

// The error tells of the wait that took the time that there was, which the log has first.
func TestOOMTellsOfFirstWait(t *testing.T) {
	var log bytes.Buffer
	d := simdev.New(simdev.Config{Capacity: 100 * mib, ManualEvents: true, IdleEvents: true})
	c, err := cupool.New(cupool.Config{Driver: d, WaitTimeout: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	s, u := pooltest.NewStream(t, c), pooltest.NewStream(t, c)
	b := pooltest.Alloc(t, c, 60*mib, s)
	require.NoError(t, u.Launch(func() {}))
	require.NoError(t, c.FreeOn(b, u))
	_, err = c.Alloc(50*mib, s)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	var late *cupool.WaitError
	require.ErrorAs(t, err, &late)
	require.Contains(t, log.String(), late.Error())
	d.CompleteAll()
}

func TestOOMHints(t *testing.T) {
	for name, tc := range map[string]struct {
		ops, size string
		want      string
		limit     int64
		change    func(d *pooltest.Driver)
	}{
		"device":              {"", "200M", "the request is larger than the device", 0, nil},
		"limit":               {"", "60M", "the request is larger than the limit", 50 * mib, nil},
		"raise it":            {"a=40M", "20M", "the device has the memory: raise Limit or Fraction", 50 * mib, nil},
		"less than a segment": {"", "512K", "the limit leaves 1 MiB, the device is asked for 2 MiB at a time: raise Limit or Fraction", mib, nil},
		"less than a segment of the device": {
			"a=98M", "512K", "the device has 1 MiB left and is asked for 2 MiB at a time: free at least 1 MiB", 0,
			func(d *pooltest.Driver) { d.Capacity -= mib },
		},
		"more than the least": { // the device is asked for 20 MiB, and then for 6
			"a=90M", "5M", "the device reports enough free memory but refuses it: it may be fragmented or shared", 0,
			func(d *pooltest.Driver) { d.Fail("MemAlloc", fmt.Errorf("%w: no luck", cupool.ErrOutOfMemory)) },
		},
		"pieces": {
			"a=6M b=2M c=6M d=2M e=4M f=6M g=2M h=6M i=2M j=4M k=60M free:a free:c free:f free:h", "22M",
			"24 MiB is cached, but in pieces or for other streams: allocate large blocks first and keep them, or lower MinSplit", 0, nil,
		},
		"free something": {"a=50M b=30M", "30M", "free at least 10 MiB of the 80 MiB that the program holds", 0, nil},
		"the device says nothing": {
			"a=50M b=30M", "30M", "free at least 30 MiB of the 80 MiB that the program holds", 0,
			func(d *pooltest.Driver) { d.Fail("MemInfo", errors.New("no luck")) },
		},
		"the device refuses": {
			"a=50M", "30M", "the device reports enough free memory but refuses it: it may be fragmented or shared", 0,
			func(d *pooltest.Driver) { d.Fail("MemAlloc", fmt.Errorf("%w: no luck", cupool.ErrOutOfMemory)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, d := pooltest.New(t, 100*mib, func(cfg *cupool.Config) { cfg.Limit = tc.limit })
			pooltest.NewScript(t, c, d).Run(tc.ops)
			if tc.change != nil {
				tc.change(d)
			}
			_, err := c.Alloc(pooltest.Size(t, tc.size), nil)
			var oom *cupool.OOMError
			require.ErrorAs(t, err, &oom)
			require.Equal(t, tc.want, oom.Hint)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// An error of the device that is not about memory ends the attempt at once
// and leaves the books as they were.
func TestLadderPassesErrorsOn(t *testing.T) {
	for call, ops := range map[string]string{"MemAlloc": "a=10M", "MemFree": "a=20M b=20M free:a"} {
		t.Run(call, func(t *testing.T) {
			c, d := pooltest.New(t, 40*mib)
			x := pooltest.NewScript(t, c, d).Run(ops)
			before := x.Layout()
			noLuck := errors.New("no luck")
			d.Fail(call, noLuck)
			_, err := c.Alloc(30*mib, nil)
			require.ErrorIs(t, err, noLuck)
			require.NotErrorIs(t, err, cupool.ErrOutOfMemory)
			require.Zero(t, c.Stats().OOMs)
			require.NoError(t, c.Check())
			require.Equal(t, before, x.Layout())
			d.Fail(call, nil)
			x.Run("c=20M")
		})
	}
}

// unalignedDriver returns addresses that no device should.
type unalignedDriver struct{ *pooltest.Driver }

func (d unalignedDriver) MemAlloc(size int64) (cupool.Ptr, error) {
	p, err := d.Driver.MemAlloc(size)
	return p + 256, err
}

func (d unalignedDriver) MemFree(p cupool.Ptr) error { return d.Driver.MemFree(p - 256) }

func TestUnalignedSegmentIsRefused(t *testing.T) {
	d := unalignedDriver{pooltest.NewDriver(1 << 30)}
	c := pooltest.Open(t, cupool.Config{Driver: d})
	_, err := c.Alloc(512, nil)
	require.ErrorContains(t, err, "unaligned address 0x10000000100")
	require.ErrorIs(t, err, cupool.ErrInvalidRange)
	require.Empty(t, d.Mem, "it went back")
	require.Zero(t, c.Stats().All.ReservedBytes.Current)
	require.NoError(t, c.Check())
}

// TestNoAddressIsRefused: a function that returns 0 and no error has returned no memory.
func TestNoAddressIsRefused(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{
		Alloc: func(int64) (cupool.Ptr, error) { return 0, nil },
		Free:  func(cupool.Ptr, int64) error { t.Error("there is nothing to free"); return nil },
	})
	_, err := p.Alloc(512, nil)
	require.ErrorIs(t, err, cupool.ErrInvalidRange)
	require.Zero(t, p.Stats().All.ReservedBytes.Current)
	require.NoError(t, c.Check())
	require.NoError(t, p.Close())
	require.NoError(t, c.Close())
}

// TestHeldAddressIsRefused: a function that returns memory which the pool holds, all of it or a
// part, has returned no memory. What was there is as before, and goes back once.
func TestHeldAddressIsRefused(t *testing.T) {
	for name, off := range map[string]int64{"the same": 0, "its end": 19 * mib, "its beginning": -19 * mib, "below": -20 * mib, "above": 20 * mib} {
		t.Run(name, func(t *testing.T) {
			const base = 1 << 40
			next, freed := cupool.Ptr(base), map[cupool.Ptr]int64{}
			c := pooltest.Open(t, cupool.Config{})
			p := pooltest.NewPrivate(t, c, cupool.PoolConfig{
				Alloc: func(int64) (cupool.Ptr, error) { return next, nil },
				Free:  func(p cupool.Ptr, size int64) error { freed[p] += size; return nil },
			})
			a := pooltest.Alloc(t, p, 20*mib, nil)
			next = cupool.Ptr(base + off)
			b, err := p.Alloc(20*mib, nil)
			want := map[cupool.Ptr]int64{base: 20 * mib}
			if off%(20*mib) == 0 && off != 0 {
				require.NoError(t, err)
				require.NoError(t, p.Free(b))
				want[next] = 20 * mib
			} else {
				require.ErrorIs(t, err, cupool.ErrInvalidRange)
				require.ErrorContains(t, err, fmt.Sprintf("returned %v, but the pool holds the 20971520 bytes at 0x10000000000", next))
			}
			require.NoError(t, c.Check())
			require.NoError(t, p.Free(a))
			require.NoError(t, p.EmptyCache())
			require.Zero(t, p.Stats().All.ReservedBytes.Current)
			require.Equal(t, want, freed)
			next = base
			require.NoError(t, p.Free(pooltest.Alloc(t, p, 20*mib, nil)), "it is free to be used again")
			require.NoError(t, p.Close())
			require.NoError(t, c.Close())
		})
	}
}

// As soon as one stream's segment went back, another stream may get the same
// addresses: nothing of the old must hide the new.
func TestSegmentsChangeHands(t *testing.T) {
	c, _ := pooltest.New(t, 40*mib)
	stop := make(chan struct{})
	var allocators, releaser sync.WaitGroup
	for range 2 {
		s := pooltest.NewStream(t, c)
		allocators.Go(func() {
			for range 3000 {
				b, err := c.Alloc(12*mib, s)
				if errors.Is(err, cupool.ErrOutOfMemory) {
					continue
				}
				if got, err := c.Lookup(b.Ptr() + 5*mib); err != nil || got != b {
					t.Errorf("%v is %v: %v", b, got, err)
				}
				if err := c.FreePtr(b.Ptr(), b.Size()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	releaser.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := c.EmptyCache(); err != nil {
				t.Error(err)
			}
		}
	})
	allocators.Wait()
	close(stop)
	releaser.Wait()
	require.NoError(t, c.Check())
}

// What another goroutine gives back counts against the limit until the device
// has it. A request waits for that.
func TestMissWaitsForRelease(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, func(cfg *cupool.Config) {
		cfg.Limit = 20 * mib
		cfg.OnOutOfMemory = func(int64) bool {
			t.Error("it was not out of memory")
			return false
		}
	})
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 20*mib, nil)))
	var asked <-chan error
	d.Hook = func(call string) {
		if call == "MemFree" && asked == nil {
			asked = pooltest.Start(func() error {
				b, err := c.Alloc(20*mib, nil)
				return errors.Join(err, c.Free(b))
			})
			time.Sleep(pooltest.Patience) // until the limit has refused it
		}
	}
	_, err := c.Trim(0)
	require.NoError(t, err)
	require.NoError(t, <-asked)
	require.Zero(t, c.Stats().OOMs)
	require.EqualValues(t, 2, c.Stats().DriverAllocs, "it did not take what was on its way")
	require.NoError(t, c.Close())
}

// growWaiting returns a pool whose blocks, so many, wait for a stream, each with work of its own,
// and their stream. The blocks have 512 MiB together; three have 384.
func growWaiting(t *testing.T, backing cupool.Backing, wait time.Duration, blocks int) (*cupool.Pool, *simdev.Device, *cupool.Stream) {
	d := simdev.New(simdev.Config{Capacity: 8 << 30, ManualEvents: true})
	c := pooltest.Open(t, cupool.Config{Driver: d, Backing: backing, GrowWait: wait})
	side := pooltest.NewStream(t, c)
	var live []cupool.Block
	for range blocks {
		live = append(live, pooltest.Alloc(t, c, 8/int64(blocks)*64*mib, nil))
	}
	for _, b := range live {
		require.NoError(t, c.RecordStream(b, side))
		require.NoError(t, side.Launch(func() {}))
		require.NoError(t, c.Free(b))
	}
	require.EqualValues(t, blocks, c.Stats().BlocksPending)
	return c, d, side
}

// leftBehind returns a pool that holds 512 MiB in eight pieces which a stream freed one after
// the other, each with work on it that is not done, and another stream, which is idle.
func leftBehind(t *testing.T, order cupool.IdleOrder, wait time.Duration) (c *cupool.Pool, d *simdev.Device, busy, idle *cupool.Stream) {
	c, d = movingPool(t, order, wait)
	busy, idle = pooltest.NewStream(t, c), pooltest.NewStream(t, c)
	leaveBehind(t, c, busy)
	return c, d, busy, idle
}

// movingPool returns a pool in which memory of streams at work moves.
func movingPool(t *testing.T, order cupool.IdleOrder, wait time.Duration) (*cupool.Pool, *simdev.Device) {
	d := simdev.New(simdev.Config{Capacity: 8 << 30, ManualEvents: true, IdleEvents: true})
	return pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingVMM, IdleOrder: order, GrowWait: wait}), d
}

// eightPieces allocates eight pieces of 64 MiB on a stream.
func eightPieces(t *testing.T, c *cupool.Pool, s *cupool.Stream) (live []cupool.Block) {
	for range 8 {
		live = append(live, pooltest.Alloc(t, c, 64*mib, s))
	}
	return live
}

// leaveBehind has a stream free eight pieces of 64 MiB, each with work on it that is not done.
func leaveBehind(t *testing.T, c *cupool.Pool, busy *cupool.Stream) {
	for _, b := range eightPieces(t, c, busy) {
		require.NoError(t, busy.Memset(b.Ptr(), 1, b.Size()))
		require.NoError(t, c.Free(b))
	}
}

// TestTakeOlder: a stream that is at work gives memory away that it has passed the free of,
// and nothing that its work may use. A pool waits for more of it before it grows, as long as
// there is work behind that.
func TestTakeOlder(t *testing.T) {
	for _, order := range []cupool.IdleOrder{cupool.OwnerOrder, cupool.DeviceOrder} {
		t.Run(order.String(), func(t *testing.T) {
			c, d, busy, idle := leftBehind(t, order, time.Nanosecond)
			holds := func(want int64) {
				t.Helper()
				require.EqualValues(t, want*mib, c.Stats().All.ReservedBytes.Current)
			}
			var live []cupool.Block
			alloc := func() { live = append(live, pooltest.Alloc(t, c, 64*mib, idle)) }
			for range 3 {
				d.CompleteNext(busy.Handle()) // a piece's work,
				d.CompleteNext(busy.Handle()) // and the event behind it
			}
			for range 3 {
				alloc()
				holds(512)
			}
			moved := c.Stats().Moves
			require.Positive(t, moved)
			alloc()
			holds(576)
			require.Equal(t, moved, c.Stats().Moves)
			d.CompleteAll()
			require.NoError(t, c.Err(), "no work lost its memory")
			for _, b := range live {
				require.NoError(t, c.Free(b))
			}
			require.NoError(t, c.Close())

			c, d, busy, idle = leftBehind(t, order, time.Minute)
			asked, stop, done := d.Calls(simdev.QueryEvent), make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for d.Calls(simdev.QueryEvent) < asked+100 { // the allocation waits
					select {
					case <-stop:
						return
					default:
						time.Sleep(time.Millisecond)
					}
				}
				d.CompleteNext(busy.Handle())
				d.CompleteNext(busy.Handle())
			}()
			b := pooltest.Alloc(t, c, 64*mib, idle)
			close(stop)
			<-done
			holds(512)
			d.CompleteAll()
			require.NoError(t, c.Err())
			require.NoError(t, c.Free(b))
			require.NoError(t, c.Close())
		})
	}
}

// TestTakePended: a stream takes memory of another one that it used itself until both passed
// the free, though the other has been given work since.
func TestTakePended(t *testing.T) {
	for _, order := range []cupool.IdleOrder{cupool.OwnerOrder, cupool.DeviceOrder} {
		t.Run(order.String(), func(t *testing.T) {
			c, d := movingPool(t, order, time.Nanosecond)
			owner, user := pooltest.NewStream(t, c), pooltest.NewStream(t, c)
			for _, b := range eightPieces(t, c, owner) {
				require.NoError(t, owner.Memset(b.Ptr(), 1, b.Size()))
				require.NoError(t, user.Memset(b.Ptr(), 1, b.Size()))
				require.NoError(t, c.RecordStream(b, user))
				require.NoError(t, c.Free(b))
			}
			d.CompleteAll()
			require.NoError(t, owner.Launch(func() {}))
			lastPiece(t, c, d, user, 512*mib)
		})
	}
}

// TestTakeOrdered: memory that is free because its stream waits for its user is not taken before
// the stream has passed that wait, whenever the program freed it.
func TestTakeOrdered(t *testing.T) {
	for _, how := range []string{"recorded", "recorded with one that is done", "held"} {
		for _, order := range []cupool.IdleOrder{cupool.OwnerOrder, cupool.DeviceOrder} {
			t.Run(fmt.Sprint(how, "/", order), func(t *testing.T) {
				c, d := movingPool(t, order, time.Nanosecond)
				owner, user, taker := pooltest.NewStream(t, c), pooltest.NewStream(t, c), pooltest.NewStream(t, c)
				var holds []func()
				for _, b := range eightPieces(t, c, owner) {
					require.NoError(t, user.Memset(b.Ptr(), 1, b.Size()))
					if how == "held" {
						release, err := c.Hold(b)
						require.NoError(t, err)
						holds = append(holds, release)
					} else {
						require.NoError(t, c.RecordStream(b, user))
					}
					if how == "recorded with one that is done" {
						require.NoError(t, c.RecordStream(b, taker))
					}
					require.NoError(t, c.Free(b)) // the owner has no work, and passes it at once
				}
				require.NoError(t, owner.WaitStream(user))
				for _, release := range holds {
					release()
				}
				_, err := c.ProcessDeferred()
				require.NoError(t, err)
				require.Zero(t, c.Stats().BlocksPending)
				lastPiece(t, c, d, taker, 576*mib)
			})
		}
	}
}

// lastPiece allocates 64 MiB on a stream, after which the pool holds so much, has the device
// finish, and closes the pool.
func lastPiece(t *testing.T, c *cupool.Pool, d *simdev.Device, s *cupool.Stream, holds int64) {
	t.Helper()
	b := pooltest.Alloc(t, c, 64*mib, s)
	require.Equal(t, holds, c.Stats().All.ReservedBytes.Current)
	d.CompleteAll()
	require.NoError(t, c.Err(), "no work lost its memory")
	require.NoError(t, c.Free(b))
	require.NoError(t, c.Close())
}

// TestGrowWait: before a pool grows it waits for what is pending, no longer than it has to,
// and only where the stream has more to do.
func TestGrowWait(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		t.Run(backing.String(), func(t *testing.T) {
			c, d, side := growWaiting(t, backing, time.Minute, 8)
			asked, stop := d.Calls(simdev.QueryEvent), make(chan struct{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				for d.Calls(simdev.QueryEvent) < asked+5 { // the allocation waits
					select {
					case <-stop:
						return
					default:
						time.Sleep(time.Millisecond)
					}
				}
				d.CompleteNext(side.Handle()) // the first block's work,
				d.CompleteNext(side.Handle()) // and its event
			}()
			b := pooltest.Alloc(t, c, 64*mib, nil)
			close(stop)
			<-done
			require.EqualValues(t, 512*mib, c.Stats().All.ReservedBytes.Current)
			require.EqualValues(t, 7, c.Stats().BlocksPending)
			require.NoError(t, c.Free(b))
			require.NoError(t, c.Close())

			for _, few := range []int{1, 3} {
				c, _, _ = growWaiting(t, backing, time.Hour, few)
				reserved := c.Stats().All.ReservedBytes.Current
				pooltest.Alloc(t, c, 64*mib, nil)
				require.Equal(t, reserved+64*mib, c.Stats().All.ReservedBytes.Current, "the device would be idle")
				require.Error(t, c.Close(), "a leak")
			}

			c, _, _ = growWaiting(t, backing, time.Millisecond, 8)
			for i := range int64(4) {
				pooltest.Alloc(t, c, 64*mib, nil)
				require.EqualValues(t, (576+64*i)*mib, c.Stats().All.ReservedBytes.Current, "it waited long enough")
			}
			require.Error(t, c.Close(), "leaks")

			c, _, _ = growWaiting(t, backing, 0, 8)
			pooltest.Alloc(t, c, 64*mib, nil)
			require.EqualValues(t, 576*mib, c.Stats().All.ReservedBytes.Current)
			require.Error(t, c.Close(), "a leak")
		})
	}
}

// TestGrowWaitEnds: GrowWait bounds all waits of an allocation together, and nobody waits
// for what cannot help: for a block that is larger than the device, as far as the pool knows
// its size, or for memory that an isolated pool keeps where it is. A wait whose time is over
// looks twice at events, or thrice.
func TestGrowWaitEnds(t *testing.T) {
	pending := func(size int64) func(*testing.T, cupool.Backing, time.Duration) (*simdev.Device, func() error) {
		return func(t *testing.T, backing cupool.Backing, wait time.Duration) (*simdev.Device, func() error) {
			c, d, _ := growWaiting(t, backing, wait, 8)
			return d, func() error { return testkit.Second(c.Alloc(size, nil)) }
		}
	}
	left := func(isolated bool) func(*testing.T, cupool.Backing, time.Duration) (*simdev.Device, func() error) {
		return func(t *testing.T, backing cupool.Backing, wait time.Duration) (*simdev.Device, func() error) {
			d := simdev.New(simdev.Config{Capacity: 8 << 30, ManualEvents: true, IdleEvents: true})
			root := pooltest.Open(t, cupool.Config{Driver: d, Backing: backing, GrowWait: wait})
			c, err := root.NewPool(cupool.PoolConfig{Isolated: isolated})
			require.NoError(t, err)
			busy, idle := pooltest.NewStream(t, c), pooltest.NewStream(t, c)
			leaveBehind(t, c, busy)
			return d, func() error { return testkit.Second(c.Alloc(64*mib, idle)) }
		}
	}
	for name, tc := range map[string]struct {
		open  func(*testing.T, cupool.Backing, time.Duration) (*simdev.Device, func() error)
		looks [2]int64 // that GrowWait costs: in segments, in virtual memory
		fails bool
	}{
		"pending":   {open: pending(64 * mib), looks: [2]int64{2, 3}},
		"too large": {open: pending(9 << 30), looks: [2]int64{2, 0}, fails: true},
		"left":      {open: left(false), looks: [2]int64{0, 12}}, // eight at events of allocations before
		"isolated":  {open: left(true)},
	} {
		for i, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
			t.Run(name+"/"+backing.String(), func(t *testing.T) {
				asked := func(wait time.Duration) (looks, events int64) {
					d, alloc := tc.open(t, backing, wait)
					before := d.Calls(simdev.QueryEvent)
					require.Equal(t, tc.fails, alloc() != nil)
					return d.Calls(simdev.QueryEvent) - before, d.Calls(simdev.RecordEvent)
				}
				looks, events := asked(time.Nanosecond)
				least, recorded := asked(0)
				require.Equal(t, tc.looks[i], looks-least)
				if tc.looks == [2]int64{} {
					require.Equal(t, recorded, events)
				}
			})
		}
	}
}

// TestManyStitchedBlocks: as many stitched blocks can live as there is memory for. Of the ranges
// that hold none, some hundreds stay, and those that work may use.
func TestManyStitchedBlocks(t *testing.T) {
	const blocks = 600
	d := simdev.New(simdev.Config{Capacity: 8 << 30, ManualEvents: true, IdleEvents: true})
	c := pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingVMM, MaxChunk: 2 * mib, MagazineBytes: -1})
	var pieces, live []cupool.Block
	for range 2 * blocks * 2 {
		pieces = append(pieces, pooltest.Alloc(t, c, 2*mib, nil))
	}
	for i := 0; i < len(pieces); i += 2 {
		require.NoError(t, c.Free(pieces[i]))
	}
	reserved := c.Stats().All.ReservedBytes.Current
	use := func() {
		for range blocks {
			b := pooltest.Alloc(t, c, 4*mib, nil)
			require.NoError(t, c.DefaultStream().Memset(b.Ptr(), 1, b.Size()))
			live = append(live, b)
		}
		for _, b := range live {
			require.NoError(t, c.Free(b))
		}
		live = nil
	}
	use()
	require.EqualValues(t, blocks, c.Stats().Stitches)
	unmapped := d.Calls(simdev.MemUnmap)
	require.NoError(t, c.Free(pooltest.Alloc(t, c, mib*blocks, nil))) // a range of other chunks
	require.Equal(t, unmapped, d.Calls(simdev.MemUnmap), "work may use them")
	d.CompleteAll()
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 4*mib*blocks, nil)))
	require.Greater(t, d.Calls(simdev.MemUnmap), unmapped)
	use()
	require.Equal(t, reserved, c.Stats().All.ReservedBytes.Current)
	d.CompleteAll()
	require.NoError(t, c.Err(), "no work lost its memory")
	require.NoError(t, c.Check())
	for i := 1; i < len(pieces); i += 2 {
		require.NoError(t, c.Free(pieces[i]))
	}
	require.NoError(t, c.Close())
}

// TestContextWhereMemoryGoesBack: a request with a context does not wait for other streams to give
// idle segments or retired pools back.
func TestContextWhereMemoryGoesBack(t *testing.T) {
	for name, x := range map[string]struct {
		backing  cupool.Backing
		capacity int64
		own      bool
		size     int64
	}{
		"idle segments":               {cupool.BackingSegments, 4 << 30, false, 310 * mib},
		"idle segments of a function": {cupool.BackingSegments, 4 << 30, true, 310 * mib},
		"a retired pool of segments":  {cupool.BackingSegments, 64 * mib, false, 62 * mib},
		"a retired pool":              {cupool.BackingVMM, 64 * mib, false, 62 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			host := must(cupool.OpenHost(cupool.HostConfig{Capacity: x.capacity}))
			c := pooltest.Open(t, cupool.Config{Driver: host, Backing: x.backing})
			p := c
			if x.own {
				p = pooltest.NewPrivate(t, c, cupool.PoolConfig{Alloc: host.MemAlloc, Free: func(q cupool.Ptr, _ int64) error { return host.MemFree(q) }})
			}
			from := p
			if x.capacity == 64*mib {
				from = pooltest.NewPrivate(t, c, cupool.PoolConfig{})
			}
			b := pooltest.Alloc(t, from, min(300*mib, x.capacity/3), nil)
			if from != p {
				require.NoError(t, from.Retire())
			}
			require.NoError(t, c.Free(b))
			s := pooltest.NewStream(t, c)
			g := pooltest.HoldStream(t, s)
			ctx, cancel := context.WithTimeout(t.Context(), pooltest.Patience)
			defer cancel()
			done := pooltest.Start(func() error { return testkit.Second(p.AllocContext(ctx, x.size, nil)) })
			select {
			case err := <-done:
				require.True(t, err == nil || errors.Is(err, context.DeadlineExceeded), err)
			case <-time.After(time.Minute):
				t.Error("it waits on after its context")
			}
			g.Open()
			var leak *cupool.LeakError
			if err := c.Close(); err != nil {
				require.ErrorAs(t, err, &leak)
			}
			require.NoError(t, host.Close())
		})
	}
}
