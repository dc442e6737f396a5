package pytorch_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
)

// The checklist that PyTorch's tests of its CUDA caching allocator make
// (test/test_cuda.py, test/test_cuda_multigpu.py), its parts "Core",
// "OOM/limits" and "Streams". Each line is a test here, in the root package or
// in the battery (internal/conformance), or is not applicable:
//
//	test_memory_allocation                       TestPyTorchMemoryAllocation
//	test_memory_stats                            TestPyTorchMemoryStats
//	test_memory_stats_multigpu                   TestPyTorchMemoryStatsMultiDevice; every statistic after
//	                                             every step: battery, "model"
//	test_allocator_fuzz                          TestPyTorchAllocatorFuzz; battery, "random"
//	test_cachingAllocator_raw_alloc              not applicable: caching cannot be turned off; a program
//	                                             that wants none calls the Driver
//	test_allocator_settings                      TestPyTorchAllocatorSettings, TestParseAllocConf and its errors;
//	                                             round-up forms: TestParseDivisions, TestDivisionsRoundAsPyTorch
//	test_allocator_backend                       TestPyTorchAllocatorBackend, TestConfigFromEnv
//	test_allocator_memory_fraction_setting       TestPyTorchAllocatorSettings, TestParseAllocConfErrors
//	test_multi_threads_alloc_in_same_order       TestPyTorchMultiThreadsAllocInSameOrder
//	test_nccl_mem_alloc_addresses_in_random_order  TestPyTorchAddressesInRandomOrder
//
//	test_out_of_memory                           TestPyTorchOutOfMemory
//	test_out_of_memory_retry                     TestPyTorchOutOfMemoryRetry
//	test_raises_oom                              TestPyTorchRaisesOOM
//	test_notifies_oom                            TestPyTorchNotifiesOOM
//	test_set/get_per_process_memory_fraction     TestPyTorchPerProcessMemoryFraction
//	test_throw_on_cudamalloc_oom                 not applicable: there is no mode that refuses before trying;
//	                                             the counter of refusals is in TestPyTorchOutOfMemory
//	test_max_split_expandable                    TestMaxSplit; with virtual memory it is refused: TestConfigErrors
//	test_garbage_collect_expandable              TestGarbageCollectionThreshold; with virtual memory: TestSoftLimitVirtual
//
//	test_record_stream                           TestPyTorchRecordStream; battery, "early_free"
//	test_record_stream_on_shifted_view           TestPyTorchRecordStreamOnShiftedView
//	test_caching_allocator_record_stream_oom     TestPyTorchRecordStreamOOM; battery, "pending_under_pressure"

func TestPyTorchMemoryAllocation(t *testing.T) {
	backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		prev := c.Stats().LiveBytes
		b := allocate(t, c, 1, nil)
		require.Greater(t, c.Stats().LiveBytes, prev)
		require.NoError(t, c.Free(b))
		require.Equal(t, prev, c.Stats().LiveBytes)
	})
}

func TestPyTorchMemoryStats(t *testing.T) {
	backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		const kib = 1024
		keep := allocate(t, c, 100, nil)
		c.ResetPeak()
		before := c.Stats().All.ActiveBytes
		require.Equal(t, before.Current, before.Peak)
		b := allocate(t, c, kib, nil)
		during := c.Stats().All.ActiveBytes
		require.Equal(t, cupool.Stat{Current: before.Current + kib, Peak: before.Current + kib, Allocated: before.Allocated + kib, Freed: before.Freed}, during)
		require.NoError(t, c.Free(b))
		after := c.Stats().All.ActiveBytes
		require.Equal(t, cupool.Stat{Current: before.Current, Peak: before.Current + kib, Allocated: before.Allocated + kib, Freed: before.Freed + kib}, after)
		c.ResetPeak()
		require.Equal(t, before.Current, c.Stats().All.ActiveBytes.Peak)
		require.NoError(t, c.Free(keep))
	})
}

// TestPyTorchMemoryStatsMultiDevice uses two devices by turns: neither's
// statistics see the other, a size of zero changes nothing, and current
// values never exceed peaks.
func TestPyTorchMemoryStatsMultiDevice(t *testing.T) {
	var pools [2]*cupool.Pool
	for i := range pools {
		c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{Name: fmt.Sprint("sim ", i)}), MagazineBytes: -1})
		require.NoError(t, err)
		pools[i] = c
	}
	var live [2][]cupool.Block
	var want [2]int64
	for i := range 300 {
		k := i % 2
		c, other := pools[k], pools[1-k].Stats()
		switch {
		case i%5 == 4:
			b := live[k][0]
			live[k] = live[k][1:]
			require.NoError(t, c.Free(b))
			want[k] -= b.Size()
		case i%7 == 6:
			before := c.Stats()
			b := allocate(t, c, 0, nil)
			require.NoError(t, c.Free(b))
			require.Equal(t, before, c.Stats())
		case i%50 == 48:
			require.NoError(t, c.EmptyCache())
		default:
			b := allocate(t, c, int64(i*i*100+1), nil)
			live[k] = append(live[k], b)
			want[k] += b.Size()
		}
		st := c.Stats()
		require.Equal(t, want[k], st.All.RequestedBytes.Current)
		require.EqualValues(t, len(live[k]), st.All.Allocation.Current)
		for _, s := range []cupool.Stat{st.All.Allocation, st.All.Segment, st.All.Active, st.All.InactiveSplit, st.All.RequestedBytes, st.All.AllocatedBytes, st.All.ActiveBytes, st.All.ReservedBytes, st.All.InactiveSplitBytes} {
			require.LessOrEqual(t, s.Current, s.Peak)
			require.Equal(t, s.Current, s.Allocated-s.Freed)
		}
		require.Equal(t, other, pools[1-k].Stats())
		require.NoError(t, c.Check())
	}
	for k, c := range pools {
		for _, b := range live[k] {
			require.NoError(t, c.Free(b))
		}
		require.NoError(t, c.Close())
	}
}

// TestPyTorchAllocatorFuzz: thousands of random allocations, frees and emptied
// caches; every block holds what was written to it.
func TestPyTorchAllocatorFuzz(t *testing.T) {
	steps := testkit.Rounds(10_000)
	backings(t, 8<<30, func(t *testing.T, c *cupool.Pool) {
		r := rand.New(rand.NewPCG(1, 2))
		type live struct {
			*cupool.Buffer[uint64]
			value uint64
		}
		var all []live
		drop := func(i int) {
			got, err := all[i].ToHost()
			require.NoError(t, err)
			for _, v := range got {
				if v != all[i].value {
					t.Fatalf("%d instead of %d", v, all[i].value)
				}
			}
			require.NoError(t, all[i].Free())
			all[i] = all[len(all)-1]
			all = all[:len(all)-1]
		}
		for range steps {
			switch n := r.IntN(100); {
			case n < 1:
				require.NoError(t, c.EmptyCache())
			case n < 50 && len(all) > 0 || len(all) > 100:
				drop(r.IntN(len(all)))
			default:
				v := r.Uint64()
				data := make([]uint64, 1+r.IntN(1<<(1+r.IntN(14))))
				for i := range data {
					data[i] = v
				}
				b, err := cupool.BufferFrom(c, data, nil)
				require.NoError(t, err)
				all = append(all, live{b, v})
			}
		}
		for len(all) > 0 {
			drop(0)
		}
	})
}

func TestPyTorchAllocatorSettings(t *testing.T) {
	d := simdev.New(simdev.Config{})
	for _, tc := range []struct {
		field string
		cfg   cupool.Config
	}{
		{"Fraction", cupool.Config{Fraction: 1.5}},
		{"Fraction", cupool.Config{Fraction: -0.5}},
		{"Limit", cupool.Config{Limit: -1}},
		{"SmallLimit", cupool.Config{SmallLimit: -1}},
		{"SmallSegment", cupool.Config{SmallSegment: 1000}},
		{"LargeSegment", cupool.Config{LargeSegment: 1 << 20}},
		{"LargeLimit", cupool.Config{LargeLimit: 32 << 20}},
		{"SegmentRounding", cupool.Config{SegmentRounding: 1000}},
		{"MinSplit", cupool.Config{MinSplit: 100}},
		{"Backing", cupool.Config{Backing: 99}},
	} {
		tc.cfg.Driver = d
		_, err := cupool.New(tc.cfg)
		var e *cupool.ConfigError
		require.ErrorAs(t, err, &e, "%+v", tc.cfg)
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
		if tc.field != "LargeLimit" { // found as a LargeSegment that is too small
			require.Equal(t, tc.field, e.Field)
		}
	}
	require.Zero(t, d.Stats().Allocations)
	// Sizes are rounded to 512, exactly.
	c, err := cupool.New(cupool.Config{Driver: d, MagazineBytes: -1})
	require.NoError(t, err)
	for _, size := range []int64{1, 511, 512, 513, 1000, 1 << 20, 1<<20 + 1, 3 << 20, 50<<20 + 7} {
		b := allocate(t, c, size, nil)
		require.Equal(t, (size+511)/512*512, c.Stats().LiveBytes)
		require.NoError(t, c.Free(b))
	}
	require.NoError(t, c.Close())
}

func TestPyTorchAllocatorBackend(t *testing.T) {
	for b, name := range map[cupool.Backing]string{cupool.BackingAuto: "auto", cupool.BackingSegments: "segments", cupool.BackingVMM: "vmm"} {
		require.Equal(t, name, b.String())
	}
	// A device without virtual memory.
	var plain struct{ cupool.Driver }
	plain.Driver = simdev.New(simdev.Config{})
	_, err := cupool.New(cupool.Config{Driver: plain, Backing: cupool.BackingVMM})
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	c, err := cupool.New(cupool.Config{Driver: plain})
	require.NoError(t, err)
	b := allocate(t, c, 3<<20, nil)
	require.Contains(t, c.Snapshot().Layout(), "[Live 3M][Free 17M]")
	require.NoError(t, c.Free(b))
	require.NoError(t, c.Close())
}

// TestPyTorchMultiThreadsAllocInSameOrder: threads that make the same calls
// again get the same memory in the same order, though splits and merges came
// between.
func TestPyTorchMultiThreadsAllocInSameOrder(t *testing.T) {
	backings(t, 8<<30, func(t *testing.T, c *cupool.Pool) {
		const threads = 4
		sizes := []int64{5 << 20, 512, 3 << 20, 70_000, 9 << 20, 1 << 20, 512, 2 << 20}
		var streams [threads]*cupool.Stream
		for i := range streams {
			s, err := c.NewStream()
			require.NoError(t, err)
			streams[i] = s
		}
		round := func() (at [threads][]cupool.Ptr) {
			var wg sync.WaitGroup
			for i, s := range streams {
				wg.Go(func() {
					var blocks []cupool.Block
					for _, n := range sizes {
						b, err := c.Alloc(n, s)
						if err != nil {
							t.Error(err)
							return
						}
						blocks = append(blocks, b)
						at[i] = append(at[i], b.Ptr())
					}
					for j := range blocks { // neither as allocated nor the other way round
						if err := c.Free(blocks[(j*3)%len(blocks)]); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			return at
		}
		first := round()
		for range 5 {
			require.Equal(t, first, round())
		}
	}, func(cfg *cupool.Config) { cfg.MagazineBytes = -1 })
}

// shuffled is a device that hands segments out at addresses in any order.
type shuffled struct {
	cupool.Driver
	at    []cupool.Ptr // of segments of 2 MiB, to be handed out in this order
	order map[cupool.Ptr]int
}

func newShuffled(t *testing.T, perm []int) *shuffled {
	s := &shuffled{Driver: struct{ cupool.Driver }{simdev.New(simdev.Config{})}, order: map[cupool.Ptr]int{}}
	all := make([]cupool.Ptr, len(perm))
	for i := range all {
		p, err := s.Driver.MemAlloc(2 << 20)
		require.NoError(t, err)
		all[i] = p
	}
	for i, j := range perm {
		s.at = append(s.at, all[j])
		s.order[all[j]] = i
	}
	return s
}

func (s *shuffled) MemAlloc(size int64) (cupool.Ptr, error) {
	if size != 2<<20 || len(s.at) == 0 {
		return 0, cupool.ErrOutOfMemory
	}
	p := s.at[0]
	s.at = s.at[1:]
	return p, nil
}

// TestPyTorchAddressesInRandomOrder: placement does not depend on where the
// device puts segments.
func TestPyTorchAddressesInRandomOrder(t *testing.T) {
	const segments = 24
	var first string
	r := rand.New(rand.NewPCG(5, 6))
	for try := range 10 {
		perm := r.Perm(segments)
		if try == 0 {
			for i := range perm {
				perm[i] = i
			}
		}
		d := newShuffled(t, perm)
		c, err := cupool.New(cupool.Config{Driver: d, MagazineBytes: -1})
		require.NoError(t, err)
		var where strings.Builder
		var live []cupool.Block
		ops := rand.New(rand.NewPCG(7, 8))
		for range 2_000 {
			if len(live) > 0 && ops.IntN(2) == 0 || len(live) > 60 {
				i := ops.IntN(len(live))
				require.NoError(t, c.Free(live[i]))
				live = append(live[:i], live[i+1:]...)
				continue
			}
			b := allocate(t, c, 1+int64(ops.IntN(400_000)), nil)
			live = append(live, b)
			base := b.Ptr() &^ (2<<20 - 1)
			fmt.Fprintf(&where, "%d+%d ", d.order[base], b.Ptr()-base)
		}
		for _, b := range live {
			require.NoError(t, c.Free(b))
		}
		require.NoError(t, c.Close())
		if try == 0 {
			first = where.String()
		}
		require.Equal(t, first, where.String())
	}
}
