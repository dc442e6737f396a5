package cupool_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hook"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/snapshot"
)

// everything is every sanitizer but guards, which replace the backing.
var everything = cupool.Sanitizers{Canaries: 256, Poison: true}

// unpoisoned has Free return what it finds when the block's work is done: it gives
// the device no work of its own.
var unpoisoned = cupool.Sanitizers{Canaries: 256}

// sanitized runs a test on both backings, with a change of the Config.
func sanitized(t *testing.T, set cupool.Sanitizers, f func(t *testing.T, c *cupool.Pool)) {
	pooltest.Backings(t, 1<<30, f, func(cfg *cupool.Config) { cfg.Sanitize = set })
}

// corruption returns the one CorruptionError of an error.
func corruption(t *testing.T, err error) *cupool.CorruptionError {
	t.Helper()
	var e *cupool.CorruptionError
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, cupool.ErrCorrupted)
	require.Equal(t, e.AfterFree, errors.Is(e, cupool.ErrUseAfterFree))
	return e
}

// TestCanaries: bytes behind a block that were written are found by Free, where
// the work is done, and by Check, whoever frees the block.
func TestCanaries(t *testing.T) {
	sanitized(t, cupool.Sanitizers{Canaries: 64}, func(t *testing.T, c *cupool.Pool) {
		for _, size := range []int64{1, 511, 512, 1000, 3 << 20} {
			for _, far := range []int64{0, 17, 63} {
				b := pooltest.Alloc(t, c.WithLabel("victim"), size, nil)
				require.NoError(t, c.DefaultStream().Memset(b.Ptr(), 7, size))
				require.NoError(t, c.Check())
				require.NoError(t, c.DefaultStream().Memset(b.Ptr()+cupool.Ptr(size+far), 7, 1))
				require.NoError(t, c.DefaultStream().Sync())
				e := corruption(t, c.Check())
				require.Equal(t, []any{b.Ptr(), size, size + far, int64(1), false, "victim"}, []any{e.Ptr, e.Size, e.Offset, e.Bytes, e.AfterFree, e.Label})
				require.Contains(t, e.AllocatedAt, "TestCanaries")
				require.Empty(t, e.FreedAt)
				require.NoError(t, c.Check(), "it is told once")
				require.NoError(t, c.Free(b))

				b = pooltest.Alloc(t, c, size, nil)
				require.NoError(t, c.DefaultStream().Memset(b.Ptr()+cupool.Ptr(size+far), 7, 1))
				require.NoError(t, c.DefaultStream().Sync())
				e = corruption(t, c.Free(b))
				require.Equal(t, size+far, e.Offset)
				require.True(t, strings.HasPrefix(e.FreedAt, "github.com/cupool/cupool_test.TestCanaries"), e.FreedAt)
				require.ErrorIs(t, c.Free(b), cupool.ErrDoubleFree, "it was freed all the same")
				require.ErrorIs(t, c.Check(), cupool.ErrCorrupted)
			}
		}
	})
}

// TestDamageOfOthers: what was found of a block is not said of one that later has its address.
func TestDamageOfOthers(t *testing.T) {
	sanitized(t, cupool.Sanitizers{Canaries: 64, Quarantine: -1, Wait: true}, func(t *testing.T, c *cupool.Pool) {
		alloc := func() (list []cupool.Block) {
			for range 3 {
				list = append(list, pooltest.Alloc(t, c, 3<<20, nil))
			}
			return list
		}
		for _, b := range slices.Backward(alloc()) {
			require.NoError(t, c.DefaultStream().Memset(b.Ptr(), 7, b.Size()+1))
			require.ErrorIs(t, c.Free(b), cupool.ErrCorrupted)
		}
		require.NoError(t, testkit.Second(c.Trim(0)))
		for _, b := range alloc() {
			require.NoError(t, c.Free(b))
		}
		require.ErrorIs(t, c.Check(), cupool.ErrCorrupted)
	})
}

// TestFreeInAFunctionOfAStream: a function that a stream runs can free blocks, of which nothing is
// found then, also with Wait.
func TestFreeInAFunctionOfAStream(t *testing.T) {
	set := everything
	set.Wait = true
	sanitized(t, set, func(t *testing.T, c *cupool.Pool) {
		s, freed := pooltest.NewStream(t, c), make(chan error, 1)
		b := pooltest.Alloc(t, c, 1000, s)
		require.NoError(t, s.Launch(func() { freed <- c.Free(b) }))
		require.NoError(t, <-freed)
		require.NoError(t, s.Sync())
		require.NoError(t, c.Close())
	})
}

// TestReserveIsNotInQuarantine: what was reserved serves at once, and later frees of it are looked at.
func TestReserveIsNotInQuarantine(t *testing.T) {
	sanitized(t, everything, func(t *testing.T, c *cupool.Pool) {
		require.NoError(t, c.Reserve(3<<20, nil))
		require.Zero(t, c.Stats().PendingBytes)
		b := pooltest.Alloc(t, c, 3<<20, nil)
		require.EqualValues(t, 1, c.Stats().Grown)
		require.NoError(t, c.DefaultStream().Memset(b.Ptr(), 7, b.Size()+1))
		_ = c.Free(b) // it may be too early to look
		require.NoError(t, c.DefaultStream().Sync())
		require.ErrorIs(t, c.EmptyCache(), cupool.ErrCorrupted)
	})
}

// TestCanariesElsewhere: damage is told when the frees that find it are those of
// FreeLater, FreeOn, FreePtr, EmptyCache and Close, on private pools, on closed
// streams and by tensors.
func TestCanariesElsewhere(t *testing.T) {
	overrun := func(t *testing.T, c *cupool.Pool, s *cupool.Stream) cupool.Block {
		b := pooltest.Alloc(t, c, 1000, s)
		if s == nil {
			s = c.DefaultStream()
		}
		require.NoError(t, s.Memset(b.Ptr(), 7, 1001))
		require.NoError(t, s.Sync())
		return b
	}
	for name, f := range map[string]func(t *testing.T, c *cupool.Pool) error{
		"FreeLater": func(t *testing.T, c *cupool.Pool) error {
			c.FreeLater(overrun(t, c, nil))
			_, err := c.ProcessDeferred()
			require.NoError(t, err)
			return c.Check()
		},
		"FreePtr": func(t *testing.T, c *cupool.Pool) error { return c.FreePtr(overrun(t, c, nil).Ptr(), 1000) },
		"FreeOn": func(t *testing.T, c *cupool.Pool) error {
			s := pooltest.NewStream(t, c)
			b := overrun(t, c, nil)
			require.NoError(t, c.FreeOn(b, s))
			require.NoError(t, s.Sync())
			return c.EmptyCache()
		},
		"EmptyCache": func(t *testing.T, c *cupool.Pool) error {
			c.FreeLater(overrun(t, c, nil))
			return c.EmptyCache()
		},
		"private pool": func(t *testing.T, c *cupool.Pool) error {
			p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Name: "mine"})
			b := overrun(t, p, nil)
			require.Equal(t, "mine", corruption(t, c.Free(b)).Pool)
			return p.Close()
		},
		"live at Close": func(t *testing.T, c *cupool.Pool) error {
			p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
			overrun(t, p, nil)
			err := p.Close()
			var leak *cupool.LeakError
			require.ErrorAs(t, err, &leak)
			return err
		},
		"closed stream": func(t *testing.T, c *cupool.Pool) error {
			s := pooltest.NewStream(t, c)
			b := overrun(t, c, s)
			require.NoError(t, s.Close())
			return c.Free(b)
		},
		"tensor": func(t *testing.T, c *cupool.Pool) error {
			e, err := cupool.NewEngine(c)
			require.NoError(t, err)
			x := tensor.New(tensor.WithShape(10), tensor.Of(tensor.Float32), tensor.WithEngine(e))
			// An operation that writes one number too many.
			require.NoError(t, c.DefaultStream().Memset(cupool.Ptr(x.Uintptr()), 0, 44))
			require.NoError(t, c.DefaultStream().Sync())
			_ = e.FreeTensor(x)
			return c.Check()
		},
	} {
		t.Run(name, func(t *testing.T) {
			sanitized(t, unpoisoned, func(t *testing.T, c *cupool.Pool) {
				e := corruption(t, f(t, c))
				require.Equal(t, e.Size, e.Offset)
				require.False(t, e.AfterFree)
				_ = c.Check()
			})
		})
	}
}

// TestPoison: new and freed memory has its pattern, and a write after the free is
// found when the block leaves the quarantine.
func TestPoison(t *testing.T) {
	var log bytes.Buffer
	var called []*cupool.CorruptionError
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		log.Reset()
		called = nil
		s := c.DefaultStream()
		b := pooltest.Alloc(t, c, 1000, nil)
		got := make([]byte, 1000)
		require.NoError(t, s.CopyOut(got, b.Ptr()))
		require.Equal(t, bytes.Repeat([]byte{0xCD}, 1000), got)
		require.NoError(t, c.Free(b))
		require.NoError(t, s.CopyOut(got, b.Ptr()))
		require.Equal(t, bytes.Repeat([]byte{0xDB}, 1000), got)
		require.NoError(t, c.Check())
		require.NoError(t, s.Memset(b.Ptr()+100, 1, 5))
		require.NoError(t, s.Sync())
		e := corruption(t, c.Check())
		require.Equal(t, []any{b.Ptr(), int64(1000), int64(100), int64(5), true}, []any{e.Ptr, e.Size, e.Offset, e.Bytes, e.AfterFree})
		require.Contains(t, e.AllocatedAt, "TestPoison")
		require.Contains(t, e.FreedAt, "TestPoison")
		require.Contains(t, e.Error(), "a write after free: 5 bytes from offset 100 on of the block at "+b.Ptr().String()+" (1000 bytes)")

		// Reuse finds it, too.
		b = pooltest.Alloc(t, c, 1000, nil)
		require.NoError(t, c.Free(b))
		require.NoError(t, s.Memset(b.Ptr()+999, 1, 1))
		require.NoError(t, s.Sync())
		for range 2 {
			require.NoError(t, c.Free(pooltest.Alloc(t, c, 1<<20, nil)))
		}
		require.Equal(t, int64(999), corruption(t, c.Close()).Offset)
		require.Len(t, called, 2)
		require.Equal(t, 2, strings.Count(log.String(), "level=ERROR"))
	}, func(cfg *cupool.Config) {
		cfg.Sanitize = cupool.Sanitizers{Poison: true, Quarantine: 1 << 20}
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		cfg.OnCorruption = func(e *cupool.CorruptionError) { called = append(called, e) }
	})
}

// TestQuarantine: freed blocks are not reused before as many bytes were freed
// after them, but before a request is refused.
func TestQuarantine(t *testing.T) {
	sanitized(t, cupool.Sanitizers{Quarantine: 10 << 20}, func(t *testing.T, c *cupool.Pool) {
		seen := map[cupool.Ptr]bool{}
		for range 10 {
			b := pooltest.Alloc(t, c, 1<<20, nil)
			require.False(t, seen[b.Ptr()])
			seen[b.Ptr()] = true
			require.NoError(t, c.Free(b))
		}
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 1<<20, nil)))
		b := pooltest.Alloc(t, c, 1<<20, nil)
		require.True(t, seen[b.Ptr()])
		require.NoError(t, c.Free(b))
		require.EqualValues(t, 10<<20, c.Stats().PendingBytes)
		require.NoError(t, c.EmptyCache())
		require.Zero(t, c.Stats().PendingBytes)
		require.Zero(t, c.Stats().All.ReservedBytes.Current)
		for range 20 { // the size recurs
			require.NoError(t, c.Free(pooltest.Alloc(t, c, 1000, nil)))
		}
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 1<<20, nil)))
		_, err := c.Trim(0)
		require.NoError(t, err)
		require.Zero(t, c.Stats().All.ReservedBytes.Current)
	})
	pooltest.Backings(t, 64<<20, func(t *testing.T, c *cupool.Pool) {
		for range 5 { // each needs what the last one left
			require.NoError(t, c.Free(pooltest.Alloc(t, c, 40<<20, nil)))
		}
	}, func(cfg *cupool.Config) { cfg.Sanitize = cupool.Sanitizers{Poison: true, Quarantine: 1 << 40} })
}

// TestQuarantineOfClosedStream: what was in quarantine is free when its stream is closed.
func TestQuarantineOfClosedStream(t *testing.T) {
	sanitized(t, cupool.Sanitizers{Quarantine: 1 << 30}, func(t *testing.T, c *cupool.Pool) {
		s := pooltest.NewStream(t, c)
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 1<<20, s)))
		require.EqualValues(t, 1<<20, c.Stats().PendingBytes)
		require.NoError(t, s.Close())
		require.Zero(t, c.Stats().PendingBytes)
	})
}

// TestQuarantineOfWorkThatIsDone: what a quarantine has no room for serves the next request
// when its stream's work is done, though nothing was freed since.
func TestQuarantineOfWorkThatIsDone(t *testing.T) {
	d := simdev.New(simdev.Config{ManualEvents: true})
	c := pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingSegments, Sanitize: cupool.Sanitizers{Quarantine: 1 << 20}})
	b := pooltest.Alloc(t, c, 24<<20, nil)
	require.NoError(t, c.DefaultStream().Memset(b.Ptr(), 1, 8))
	require.NoError(t, c.Free(b))
	require.EqualValues(t, 24<<20, c.Stats().PendingBytes)
	d.CompleteAll()
	again := pooltest.Alloc(t, c, 24<<20, nil)
	require.Equal(t, b.Ptr(), again.Ptr())
	require.NoError(t, c.Free(again))
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}

// TestSanitizeAcrossStreams: a block that another stream uses is filled when that
// is done with it, and not before.
func TestSanitizeAcrossStreams(t *testing.T) {
	sanitized(t, everything, func(t *testing.T, c *cupool.Pool) {
		s := pooltest.NewStream(t, c)
		b := pooltest.Alloc(t, c, 1000, nil)
		require.NoError(t, c.DefaultStream().Memset(b.Ptr(), 1, 1000))
		require.NoError(t, s.WaitStream(nil))
		gate, got := make(chan struct{}), make([]byte, 1000)
		require.NoError(t, s.Launch(func() { <-gate }))
		require.NoError(t, c.FreeOn(b, s))
		require.NoError(t, c.DefaultStream().CopyOut(got, b.Ptr()))
		require.Equal(t, bytes.Repeat([]byte{1}, 1000), got, "the stream may still read it")
		require.NoError(t, s.Memset(b.Ptr(), 2, 0))
		close(gate)
		require.NoError(t, s.Sync())
		require.NoError(t, c.EmptyCache(), "no write was wrong")

		// Frees, allocations and checks wait for no stream.
		gate = make(chan struct{})
		require.NoError(t, s.Launch(func() { <-gate }))
		for range 20 {
			b := pooltest.Alloc(t, c, 1<<20, s)
			require.NoError(t, s.Memset(b.Ptr(), 3, b.Size()))
			require.NoError(t, c.Free(b))
		}
		require.NoError(t, c.Check())
		close(gate)
		require.NoError(t, s.Sync())
		require.NoError(t, c.Check())
	})
}

// TestSanitizeWait: Free waits for the work, and returns the damage that it does.
func TestSanitizeWait(t *testing.T) {
	sanitized(t, cupool.Sanitizers{Canaries: 1, Wait: true}, func(t *testing.T, c *cupool.Pool) {
		s := pooltest.NewStream(t, c)
		for _, user := range []*cupool.Stream{c.DefaultStream(), s} {
			b := pooltest.Alloc(t, c, 8<<20, nil)
			require.NoError(t, s.WaitStream(nil))
			require.NoError(t, c.RecordStream(b, user))
			for range 20 {
				require.NoError(t, user.Memset(b.Ptr(), 1, b.Size()))
			}
			require.NoError(t, user.Memset(b.Ptr(), 1, b.Size()+2))
			e := corruption(t, c.Free(b))
			require.Equal(t, []int64{b.Size(), 2}, []int64{e.Offset, e.Bytes})
			require.Error(t, c.Check())
		}
	})
}

// TestSanitizeWaitFails: Free does not fail because the device does not wait.
func TestSanitizeWaitFails(t *testing.T) {
	d := pooltest.NewWatched(t)
	c := pooltest.Open(t, cupool.Config{Driver: d, Sanitize: cupool.Sanitizers{Canaries: 1, Wait: true}})
	b := pooltest.Alloc(t, c, 8<<20, nil)
	for _, call := range []string{"SyncStream", "SyncEvent", "RecordEvent", "NewEvent"} {
		d.FailAlways(call, errors.New("no luck"))
	}
	require.NoError(t, c.Free(b))
	d.Heal()
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// TestSanitizeSleep: canaries and zeros survive Sleep and Wake.
func TestSanitizeSleep(t *testing.T) {
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		a, b, other := pooltest.Alloc(t, c, 1000, nil), pooltest.Alloc(t, c, 5<<20, nil), pooltest.Alloc(t, c, 1000, nil)
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 3<<20, nil)))
		err := c.Sleep(func(x cupool.Block) bool { return x == b })
		if errors.Is(err, cupool.ErrNotSupported) {
			require.NoError(t, errors.Join(c.Free(a), c.Free(b), c.Free(other)))
			return
		}
		require.NoError(t, err)
		require.NoError(t, c.Check())
		require.NoError(t, c.Free(b))
		u := pooltest.NewStream(t, c)
		require.NoError(t, c.FreeOn(other, u))
		require.NoError(t, c.Wake())
		require.NoError(t, c.EmptyCache(), "what was freed meanwhile is not overrun")
		require.NoError(t, c.Check())
		require.NoError(t, c.DefaultStream().Memset(a.Ptr()+1000, 1, 1))
		require.NoError(t, c.DefaultStream().Sync())
		require.Equal(t, int64(1000), corruption(t, c.Free(a)).Offset)
		require.ErrorIs(t, c.Check(), cupool.ErrCorrupted)
	}, func(cfg *cupool.Config) { cfg.Sanitize, cfg.ZeroOnFree = unpoisoned, true })
}

// TestSleepZeroes: what Sleep does not keep is filled with zeros before the memory goes.
func TestSleepZeroes(t *testing.T) {
	d := pooltest.OpenHost(t)
	var gone cupool.Block
	c := pooltest.Open(t, cupool.Config{
		Backing: cupool.BackingVMM, ZeroOnFree: true,
		Driver: &hook.Driver{Driver: d, Around: func(c *hook.Call, do func() error) error {
			if c.Name == "MemUnmap" && !gone.IsEmpty() {
				require.Equal(t, make([]byte, gone.Size()), bytesAt(gone.Ptr(), int(gone.Size())))
				gone = cupool.Block{}
			}
			return do()
		}},
	})
	b := pooltest.Alloc(t, c, 1000, nil)
	require.NoError(t, c.DefaultStream().Memset(b.Ptr(), 0xAA, b.Size()))
	gone = b
	require.NoError(t, c.Sleep(nil))
	require.True(t, gone.IsEmpty(), "it was looked at")
	require.NoError(t, c.Wake())
	require.NoError(t, c.Free(b))
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}

// TestZero: no block shows what another one held, on whatever stream and of
// whatever pool it is.
func TestZero(t *testing.T) {
	for name, change := range map[string]func(*cupool.Config){
		"on alloc": func(cfg *cupool.Config) { cfg.ZeroOnAlloc = true },
		"on free":  func(cfg *cupool.Config) { cfg.ZeroOnFree = true },
		"both, with sanitizers": func(cfg *cupool.Config) {
			cfg.ZeroOnAlloc, cfg.ZeroOnFree, cfg.Sanitize = true, true, cupool.Sanitizers{Canaries: 100, Poison: true, Quarantine: 1 << 20}
		},
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Backings(t, 256<<20, func(t *testing.T, c *cupool.Pool) {
				streams := []*cupool.Stream{c.DefaultStream()}
				for range 3 {
					s := pooltest.NewStream(t, c)
					streams = append(streams, s)
				}
				p := pooltest.NewPrivate(t, c, cupool.PoolConfig{UseOnOOM: true})
				pools := []*cupool.Pool{c, p}
				for i := range testkit.Choose(200, 50) {
					s, from := streams[i%len(streams)], pools[i/7%2]
					size := int64(1+i*7919%997) << (4 + i%8)
					b := pooltest.Alloc(t, from, size, s)
					got := make([]byte, size)
					require.NoError(t, s.CopyOut(got, b.Ptr()))
					require.Equal(t, int(size), bytes.Count(got, []byte{0}), "allocation %d of %d bytes", i, size)
					require.NoError(t, s.Memset(b.Ptr(), 0xAA, size))
					require.NoError(t, c.Free(b))
				}
				require.NoError(t, p.Close())
			}, change)
		})
	}
}

// TestBlockThatCannotBeFilled: where the device refuses to fill a block, nobody gets it, and its
// memory serves when the device does.
func TestBlockThatCannotBeFilled(t *testing.T) {
	c, d := pooltest.New(t, 20*mib, func(cfg *cupool.Config) { cfg.ZeroOnAlloc = true })
	d.Fail("Memset", errors.New("no luck"))
	_, err := c.Alloc(20*mib, nil)
	require.ErrorContains(t, err, "no luck")
	require.Zero(t, c.Stats().LiveBytes)
	d.Fail("Memset", nil)
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 20*mib, nil)))
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// TestZeroByPool: a pool that is filled with zeros leaves nothing behind, on a
// device that does not clear memory itself; not even by Close with live blocks.
func TestZeroByPool(t *testing.T) {
	memory := map[cupool.Ptr]int64{}
	c := pooltest.Open(t, cupool.Config{})
	d := c.Driver()
	p, err := c.NewPool(cupool.PoolConfig{
		ZeroOnFree: true,
		Alloc: func(size int64) (cupool.Ptr, error) {
			p, err := d.MemAlloc(size)
			memory[p] = size
			return p, err
		},
		Free: func(cupool.Ptr, int64) error { return nil }, // looked at below
	})
	require.NoError(t, err)
	s := c.DefaultStream()
	for _, size := range []int64{1000, 1 << 20, 30 << 20} {
		b := pooltest.Alloc(t, p, size, nil)
		require.NoError(t, s.Memset(b.Ptr(), 0xAA, size))
		if size != 1<<20 {
			require.NoError(t, p.Free(b))
		}
	}
	var leak *cupool.LeakError
	require.ErrorAs(t, p.Close(), &leak)
	require.Len(t, leak.Leaks, 1)
	for at, size := range memory {
		got := make([]byte, size)
		require.NoError(t, s.CopyOut(got, at))
		require.Equal(t, make([]byte, size), got)
		require.NoError(t, d.MemFree(at))
	}
	require.NotEmpty(t, memory)
	require.NoError(t, c.Close())
}

// TestGuard: what touches memory in front of a guarded block, behind it, or after
// its free, loses the device.
func TestGuard(t *testing.T) {
	const unit = 2 << 20
	for name, f := range map[string]func(t *testing.T, c *cupool.Pool) cupool.Ptr{
		"behind":   func(t *testing.T, c *cupool.Pool) cupool.Ptr { return pooltest.Alloc(t, c, 4096, nil).Ptr() + 4096 },
		"in front": func(t *testing.T, c *cupool.Pool) cupool.Ptr { return pooltest.Alloc(t, c, unit, nil).Ptr() - 1 },
		"after free": func(t *testing.T, c *cupool.Pool) cupool.Ptr {
			b := pooltest.Alloc(t, c, 4096, nil)
			require.NoError(t, c.Free(b))
			return b.Ptr()
		},
		"after free, later": func(t *testing.T, c *cupool.Pool) cupool.Ptr {
			b := pooltest.Alloc(t, c, 4096, nil)
			require.NoError(t, c.Free(b))
			for range 5 {
				require.NoError(t, c.Free(pooltest.Alloc(t, c, 4096, nil)))
			}
			return b.Ptr()
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := pooltest.OpenHost(t)
			defer d.Close()
			c, err := cupool.New(cupool.Config{Driver: d, Sanitize: cupool.Sanitizers{Guard: true, Wait: true}})
			if errors.Is(err, cupool.ErrNotSupported) {
				t.Skip(err)
			}
			require.NoError(t, err)
			defer c.Close()
			p, s := f(t, c), c.DefaultStream()
			require.NoError(t, c.Check())
			require.NoError(t, s.Launch(func() { touch(p) }))
			require.ErrorIs(t, s.Sync(), cupool.ErrDeviceLost)
		})
	}
}

// TestGuardBooks: a guarded allocator works like another one and holds nothing
// when its blocks are freed; slack below 512 bytes has canaries.
func TestGuardBooks(t *testing.T) {
	d := pooltest.OpenHost(t)
	c, err := cupool.New(cupool.Config{Driver: d, Sanitize: cupool.Sanitizers{Guard: true, Canaries: 1, Quarantine: 1 << 20}, ZeroOnFree: true})
	if errors.Is(err, cupool.ErrNotSupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	s := c.DefaultStream()
	for i := range int64(50) {
		from := []*cupool.Pool{c, p}[i%2]
		b := pooltest.Alloc(t, from, 1+i*100_003, nil)
		require.NoError(t, s.Memset(b.Ptr(), 1, b.Size()))
		found, err := c.Lookup(b.Ptr() + cupool.Ptr(i))
		require.NoError(t, err)
		require.Equal(t, b, found)
		require.NoError(t, c.Free(b))
		require.NoError(t, from.Check())
	}
	require.NoError(t, s.Sync())
	b := pooltest.Alloc(t, c, 1000, nil)
	require.NoError(t, s.Memset(b.Ptr(), 1, 1001))
	require.NoError(t, s.Sync())
	require.Equal(t, int64(1000), corruption(t, c.Free(b)).Offset)
	require.ErrorIs(t, c.EmptyCache(), cupool.ErrCorrupted)
	require.NoError(t, p.EmptyCache())
	require.Zero(t, c.Stats().All.ReservedBytes.Current)
	free, total, err := d.MemInfo()
	require.NoError(t, err)
	require.Equal(t, total, free)
	require.ErrorIs(t, c.Sleep(nil), cupool.ErrNotSupported)
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}

// TestZeroOnFreeBesideReset: when Reset has waited for the streams, EmptyCache of another pool
// fills a block with zeros that leaves the quarantine. Reset waits for that, too, before it
// gives the memory back.
func TestZeroOnFreeBesideReset(t *testing.T) {
	d := simdev.New(simdev.Config{ManualEvents: true})
	var meanwhile func()
	c := pooltest.Open(t, cupool.Config{
		Sanitize: unpoisoned, ZeroOnFree: true, Backing: cupool.BackingVMM,
		Driver: &hook.Driver{Driver: d, Around: func(c *hook.Call, do func() error) error {
			err := do()
			if f := meanwhile; f != nil && c.Name == "SyncStream" {
				meanwhile = nil
				aside(f)
			}
			return err
		}},
	})
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	require.NoError(t, p.Free(pooltest.Alloc(t, p, mib, nil)))
	corrupted := func(err error) { require.NoError(t, pooltest.Ignore(err, cupool.ErrCorrupted)) } // there are no contents
	meanwhile = func() { corrupted(c.EmptyCache()) }
	require.NoError(t, p.Reset())
	require.Nil(t, meanwhile)
	d.CompleteAll()
	require.NoError(t, c.Sync(), "no work meets memory that is gone")
	corrupted(c.Close())
	require.NoError(t, d.Close())
}

// TestGuardEvents: the history has the end of each guarded segment. One that the device does
// not take back is logged, and goes with a later free.
func TestGuardEvents(t *testing.T) {
	var log bytes.Buffer
	d := pooltest.NewWatched(t)
	c := pooltest.Open(t, cupool.Config{
		Driver: d, Sanitize: cupool.Sanitizers{Guard: true, Quarantine: -1}, History: &cupool.History{SampleBytes: 1},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	for i := range 10 {
		b := pooltest.Alloc(t, c, 4096, nil)
		if i == 5 {
			d.FailAlways("MemUnmap", errors.New("no luck"))
		}
		require.NoError(t, c.Free(b))
		d.Heal()
	}
	must(c.Trim(0))
	require.Zero(t, c.Stats().All.ReservedBytes.Current)
	n := map[snapshot.Kind]int{}
	for _, e := range c.Snapshot().Events {
		n[e.Kind]++
	}
	require.Equal(t, n[snapshot.SegmentAlloc], n[snapshot.SegmentFree])
	require.Contains(t, log.String(), "no luck")
	require.NoError(t, c.Close())
}

// TestGuardNeedsVirtualMemory: New says so.
func TestGuardNeedsVirtualMemory(t *testing.T) {
	_, err := cupool.New(cupool.Config{Driver: pooltest.NewDriver(1 << 30), Sanitize: cupool.Sanitizers{Guard: true}})
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.ErrorContains(t, err, "Guard")
	_, err = cupool.New(cupool.Config{Sanitize: cupool.Sanitizers{Canaries: -1}})
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
}

// touch writes a byte.
func touch(p cupool.Ptr) { **(**byte)(unsafe.Pointer(&p)) = 1 }

// TestCloseStreamQuarantine: what is in quarantine outlives a call that fails while its stream is closed.
func TestCloseStreamQuarantine(t *testing.T) {
	for call, cfg := range map[string]cupool.Config{
		"Memset":     {ZeroOnFree: true},
		"SyncStream": {Sanitize: cupool.Sanitizers{Poison: true, Quarantine: 64 * mib}},
	} {
		t.Run(call, func(t *testing.T) {
			d := pooltest.NewWatched(t)
			cfg.Driver = d
			c := pooltest.Open(t, cfg)
			s := pooltest.NewStream(t, c)
			b := pooltest.Alloc(t, c, mib, s)
			if call == "Memset" {
				d.FailAlways(call, errors.New("no luck"))
			} else {
				d.FailNth(call, 2, errors.New("no luck")) // the first is Close's own
			}
			require.NoError(t, c.Free(b))
			_ = s.Close()
			require.Positive(t, d.Failed(call))
			d.Heal()
			require.NoError(t, c.Check())
			require.NoError(t, c.EmptyCache())
			require.Zero(t, c.Stats().PendingBytes)
			require.Zero(t, c.Stats().All.ReservedBytes.Current)
			require.NoError(t, c.Close())
		})
	}
}

// TestSanitizeCloseTriesAgain: a sanitizer's stream that the device refuses to destroy is tried
// once more, as what else Close gives back.
func TestSanitizeCloseTriesAgain(t *testing.T) {
	for refusals, want := range []error{nil, nil, errRefused} {
		d := pooltest.NewWatched(t)
		c := pooltest.Open(t, cupool.Config{Driver: d, Sanitize: everything})
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 5000, nil)))
		require.NoError(t, c.Sync())
		require.NoError(t, c.Check())
		for n := range refusals {
			d.FailNth("DestroyStream", n+1, errRefused)
		}
		if err := c.Close(); want == nil {
			require.NoError(t, err, "%d refusals", refusals)
			require.Empty(t, d.Leaks())
		} else {
			require.ErrorIs(t, err, want)
			require.ErrorContains(t, err, "cupool: destroying the stream of a sanitizer: ")
		}
	}
}

// TestGuardKeepsNothing: what a failing call leaves of guarded blocks goes back later, by
// EmptyCache and by Close, and the block that could not be had costs nothing.
func TestGuardKeepsNothing(t *testing.T) {
	for _, empties := range []bool{false, true} {
		for _, call := range []string{"AddressReserve", "MemCreate", "MemMap", "MemSetAccess", "MemUnmap", "MemRelease", "AddressFree"} {
			for _, twice := range []bool{false, true} { // the call that undoes what it did, too
				d := pooltest.NewWatched(t)
				c := pooltest.Open(t, cupool.Config{Driver: d, Sanitize: cupool.Sanitizers{Guard: true, Quarantine: -1}})
				p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
				d.FailNth(call, 1, errRefused)
				if twice {
					d.FailAlways("MemUnmap", errRefused)
				}
				for _, c := range []*cupool.Pool{p, c} {
					if b, err := c.Alloc(5000, nil); err == nil {
						require.NoError(t, c.Free(b))
					} else {
						require.ErrorIs(t, err, errRefused, call)
					}
				}
				d.Heal()
				if empties {
					require.NoError(t, errors.Join(p.EmptyCache(), c.EmptyCache()), call)
					require.Zero(t, d.Held(), call)
				}
				require.NoError(t, errors.Join(p.Close(), c.Close()), call)
				require.Empty(t, d.Leaks(), "%s, twice %v", call, twice)
			}
		}
	}
}

var errRefused = errors.New("refused")

// TestGuardFillFails: the memory of a guarded block that cannot be filled as a whole stays until what
// was begun of that is done.
func TestGuardFillFails(t *testing.T) {
	d := pooltest.NewWatched(t)
	c := pooltest.Open(t, cupool.Config{Driver: d, Sanitize: cupool.Sanitizers{Guard: true, Poison: true, Canaries: 64, Quarantine: -1}})
	gate := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(gate) })
	defer goOn()
	require.NoError(t, c.DefaultStream().Launch(func() { <-gate }))
	d.FailNth("Memset", 2, errRefused) // the canaries'
	_, err := c.Alloc(5000, nil)
	require.ErrorIs(t, err, errRefused)
	require.NotZero(t, d.Held(), "a fill is under way")
	goOn()
	require.NoError(t, c.Sync())
	require.NoError(t, c.Check())
	require.NoError(t, c.EmptyCache())
	require.Zero(t, d.Held())
	require.NoError(t, c.Close())
}

// TestCloseAwaitsZeros: where the device fails to wait for the zeros of live blocks, Close waits once
// more before their memory goes.
func TestCloseAwaitsZeros(t *testing.T) {
	d := pooltest.NewWatched(t)
	c := pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingVMM, ZeroOnFree: true})
	pooltest.Alloc(t, c, 4096, nil)
	zeroing, waited := false, false
	d.Watch(func(call string, _ cupool.StreamHandle) {
		switch call {
		case "Memset":
			zeroing = true
			d.FailNth("SyncStream", 1, errRefused)
		case "SyncStream":
			waited = zeroing && d.Failed("SyncStream") > 0
		case "MemUnmap":
			require.True(t, waited)
		}
	})
	var leaks *cupool.LeakError
	require.ErrorAs(t, c.Close(), &leaks)
	require.True(t, zeroing)
	require.Empty(t, d.Leaks())
}

// TestZerosAreNotLate: the zeros of live blocks that Close and Reset end are waited for as long as they
// take. A *WaitError would say that the pool is as before.
func TestZerosAreNotLate(t *testing.T) {
	for name, end := range map[string]func(*cupool.Pool) error{"Reset": (*cupool.Pool).Reset, "Close": (*cupool.Pool).Close} {
		d := pooltest.NewWatched(t)
		c := pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingVMM, ZeroOnFree: true, WaitTimeout: time.Millisecond})
		pooltest.Alloc(t, c, 4096, nil)
		d.Watch(func(call string, s cupool.StreamHandle) {
			if call == "Memset" {
				require.NoError(t, d.Launch(s, func() { time.Sleep(20 * time.Millisecond) }))
			}
		})
		err := end(c)
		var late *cupool.WaitError
		require.False(t, errors.As(err, &late), "%s: %v", name, err)
		require.Zero(t, d.Held(), name)
	}
}

// TestWakeAgain: where Wake failed to fill a block, and later succeeds, writes behind the block's end
// are found as before.
func TestWakeAgain(t *testing.T) {
	d := pooltest.NewWatched(t)
	c := pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingVMM, Sanitize: cupool.Sanitizers{Canaries: 64}})
	b := pooltest.Alloc(t, c, 5000, nil)
	require.NoError(t, c.Sleep(nil))
	d.FailNth("Memset", 1, errRefused)
	require.ErrorIs(t, c.Wake(), errRefused)
	require.NoError(t, c.Wake())
	require.NoError(t, d.Memset(b.Ptr()+5000, 1, 1, 0))
	require.NoError(t, c.Sync())
	require.ErrorIs(t, c.Check(), cupool.ErrCorrupted)
	require.NoError(t, c.Free(b))
}

// TestGuardZeroesTwice: the zeros of a guarded block whose memory the device does not take yet are
// no writes behind its end.
func TestGuardZeroesTwice(t *testing.T) {
	for _, call := range []string{"MemUnmap", "SyncStream"} {
		d := pooltest.NewWatched(t)
		c := pooltest.Open(t, cupool.Config{Driver: d, ZeroOnFree: true, Sanitize: cupool.Sanitizers{Guard: true, Canaries: 64, Quarantine: 1 << 20}})
		b := pooltest.Alloc(t, c, 5000, nil)
		require.NoError(t, c.Sync())
		d.FailAlways(call, errRefused)
		require.NoError(t, c.Free(b))
		require.NoError(t, testkit.Second(c.ProcessDeferred()))
		require.Positive(t, d.Failed(call), call)
		require.NoError(t, c.Check(), call)
		d.Heal()
		require.NoError(t, testkit.Second(c.ProcessDeferred()))
		require.NoError(t, c.Check(), call)
		require.NoError(t, c.EmptyCache(), call)
		require.Zero(t, d.Held(), call)
		require.NoError(t, c.Close())
	}
}
