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
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// The checklist that PyTorch's tests of its CUDA caching allocator make
// (test/test_cuda.py, test/test_cuda_multigpu.py), its parts "Core",
// "OOM/limits" and "Streams". Each line is a test here, in the root package, in
// the battery (internal/conformance), in internal/model, or is not applicable:
//
//	test_memory_allocation                       battery, "sizes"
//	test_memory_stats                            TestStats, TestResetPeak
//	test_memory_stats_multigpu                   TestStatsAreTheSnapshots
//	test_allocator_fuzz                          FuzzPrograms; battery, "programs"
//	test_cachingAllocator_raw_alloc              not applicable: caching cannot be turned off; a program
//	                                             that wants none calls the Driver
//	test_allocator_settings                      TestConfigErrors, TestParseAllocConf and its errors;
//	                                             round-up forms: TestParseDivisions, TestDivisionsRoundAsPyTorch
//	test_allocator_backend                       TestBacking, TestConfigFromEnv
//	test_allocator_memory_fraction_setting       TestConfigErrors, TestParseAllocConfErrors
//	test_multi_threads_alloc_in_same_order       TestPyTorchMultiThreadsAllocInSameOrder
//	test_nccl_mem_alloc_addresses_in_random_order  TestPyTorchAddressesInRandomOrder
//
//	test_out_of_memory                           TestPyTorchOutOfMemory
//	test_out_of_memory_retry                     TestPyTorchRaisesOOM, TestLadder
//	test_raises_oom                              TestPyTorchRaisesOOM
//	test_notifies_oom                            TestLadderAsksTheProgram
//	test_set/get_per_process_memory_fraction     TestPyTorchPerProcessMemoryFraction
//	test_throw_on_cudamalloc_oom                 not applicable: there is no mode that refuses before trying;
//	                                             the counter of refusals is in TestPyTorchOutOfMemory
//	test_max_split_expandable                    TestMaxSplit; with virtual memory it is refused: TestConfigErrors
//	test_garbage_collect_expandable              TestGarbageCollectionThreshold; with virtual memory: TestSoftLimitVirtual
//
//	test_record_stream                           battery, "early_free"
//	test_record_stream_on_shifted_view           TestPyTorchRecordStreamOnShiftedView
//	test_caching_allocator_record_stream_oom     battery, "pending_under_pressure"

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
			b := pooltest.Alloc(t, c, 1+int64(ops.IntN(400_000)), nil)
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
