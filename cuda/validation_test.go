package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// What docs/gpu-validation.md reports: long runs in which kernels write and
// verify. They are short by default; CUPOOL_GPU_STEPS and CUPOOL_GPU_SECONDS
// make them as long as wanted.

func envInt(name string, def int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return def
}

// gpu is a pool on device memory with the test kernels and a counter of
// wrong words that kernels and the host share.
type gpu struct {
	*cupool.Pool
	k     *gputest.Kernels
	wrong cupool.Ptr
	most  int64 // of a block that kernels fill and verify
}

func newGPU(t *testing.T, cfg cupool.Config) *gpu {
	gputest.Need(t)
	d, err := cuda.Open(0)
	require.NoError(t, err)
	if fakecuda.Loaded() { // its memory is the computer's, and there are tests that fill it
		_, total, err := d.MemInfo()
		require.NoError(t, err)
		fakecuda.SetMemory(0, 1<<30)
		t.Cleanup(func() { fakecuda.SetMemory(0, total) })
	}
	k, err := gputest.Load(d.Context())
	if err != nil {
		require.NoError(t, d.Close())
		t.Skipf("no kernels here: %v", err)
	}
	wrong, err := d.HostAlloc(4)
	require.NoError(t, err)
	cfg.Driver = d
	c, err := cupool.New(cfg)
	require.NoError(t, err)
	g := &gpu{c, k, wrong, math.MaxInt64}
	g.counter().Store(0)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		require.Zero(t, g.counter().Load(), "words that kernels found wrong")
		require.NoError(t, errors.Join(k.Close(), d.HostFree(wrong), d.Close()))
	})
	return g
}

func (g *gpu) counter() *atomic.Uint32 { return *(**atomic.Uint32)(unsafe.Pointer(&g.wrong)) }

// stamped is a block that a kernel filled.
type stamped struct {
	b     cupool.Block
	s     *cupool.Stream
	value uint32
}

func (g *gpu) fill(b cupool.Block, s *cupool.Stream, value uint32) (stamped, error) {
	return stamped{b, s, value}, g.k.Fill(uintptr(s.Handle()), uintptr(b.Ptr()), g.bytes(b), value)
}

// bytes is how much of a block kernels fill and verify.
func (g *gpu) bytes(b cupool.Block) int64 { return min(b.Size(), g.most) &^ 3 }

// retire has a kernel verify the block, now and then on another stream, and
// frees it without waiting.
func (g *gpu) retire(x stamped, other *cupool.Stream) error {
	s := x.s
	if other != nil && other != s {
		if err := errors.Join(other.WaitStream(s), g.RecordStream(x.b, other)); err != nil {
			return err
		}
		s = other
	}
	return errors.Join(
		g.k.Check(uintptr(s.Handle()), uintptr(x.b.Ptr()), g.bytes(x.b), x.value, uintptr(g.wrong)),
		g.Free(x.b))
}

// churn allocates and frees at random until stop, every block filled by a
// kernel when it comes and verified by one when it goes.
func (g *gpu) churn(r *rand.Rand, s, other *cupool.Stream, keep int, stop func(step int) bool) error {
	var live []stamped
	for step := 0; !stop(step); step++ {
		if len(live) > 0 && (len(live) >= keep || r.IntN(2) == 0) {
			i := r.IntN(len(live))
			var o *cupool.Stream
			if r.IntN(4) == 0 {
				o = other
			}
			if err := g.retire(live[i], o); err != nil {
				return err
			}
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
			continue
		}
		b, err := g.Alloc(4+r.Int64N(int64(4)<<r.IntN(22)), s)
		if err != nil {
			return err
		}
		x, err := g.fill(b, s, r.Uint32())
		if err != nil {
			return err
		}
		live = append(live, x)
	}
	var errs []error
	for _, x := range live {
		errs = append(errs, g.retire(x, nil))
	}
	return errors.Join(errs...)
}

func TestGPURandomKernels(t *testing.T) {
	steps := envInt("CUPOOL_GPU_STEPS", testkit.Choose(3000, 1000))
	for _, b := range []cupool.Backing{cupool.BackingVMM, cupool.BackingSegments} {
		t.Run(b.String(), func(t *testing.T) {
			g := newGPU(t, cupool.Config{Backing: b})
			s2, err := g.NewStream()
			require.NoError(t, err)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d, %d steps", seed, steps)
			require.NoError(t, g.churn(rand.New(rand.NewPCG(seed, 0)), g.DefaultStream(), s2, 200, func(i int) bool { return i >= steps }))
			require.NoError(t, errors.Join(g.DefaultStream().Sync(), s2.Sync(), g.Check()))
			st := g.Stats()
			t.Logf("%d allocations, hit ratio %.4f, %d stitches, %d driver allocations, %d events, peak reserved %d MiB",
				st.All.Allocation.Allocated, st.HitRatio(), st.Stitches, st.DriverAllocs, st.EventsRecorded, st.All.ReservedBytes.Peak>>20)
		})
	}
}

func TestGPUEightStreams(t *testing.T) {
	g := newGPU(t, cupool.Config{})
	g.most = testkit.Choose[int64](g.most, 1<<20)
	end := time.Now().Add(time.Duration(envInt("CUPOOL_GPU_SECONDS", testkit.Choose(2, 1))) * time.Second)
	var streams [8]*cupool.Stream
	for i := range streams {
		var err error
		streams[i], err = g.NewStream()
		require.NoError(t, err)
	}
	var errs [8]error
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 8))
			errs[i] = g.churn(r, streams[i], streams[(i+1)%8], 50, func(int) bool { return time.Now().After(end) })
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs[:]...))
	for _, s := range streams {
		require.NoError(t, s.Sync())
	}
	require.NoError(t, g.Check())
	st := g.Stats()
	t.Logf("%d allocations, hit ratio %.4f, %d events", st.All.Allocation.Allocated, st.HitRatio(), st.EventsRecorded)
}

// The device really full: fragmented, refusing, and then working again.
func TestGPUFull(t *testing.T) {
	for _, b := range []cupool.Backing{cupool.BackingVMM, cupool.BackingSegments} {
		t.Run(b.String(), func(t *testing.T) {
			g := newGPU(t, cupool.Config{Backing: b})
			g.most = testkit.Choose[int64](g.most, 1<<20)
			_, total, err := g.Driver().MemInfo()
			require.NoError(t, err)
			size := max(total/128, 12<<20) &^ (1<<21 - 1) // smaller ones share segments
			var live []stamped
			for {
				b, err := g.Alloc(size, nil)
				if err != nil {
					var oom *cupool.OOMError
					require.ErrorAs(t, err, &oom)
					t.Log(oom)
					break
				}
				x, err := g.fill(b, g.DefaultStream(), uint32(len(live)))
				require.NoError(t, err)
				live = append(live, x)
			}
			require.Greater(t, len(live), 50)
			for i := 0; i < len(live); i += 2 { // holes everywhere
				require.NoError(t, g.retire(live[i], nil))
			}
			big, err := g.Alloc(8*size, nil) // larger than any hole
			require.NoError(t, err)
			x, err := g.fill(big, g.DefaultStream(), 77)
			require.NoError(t, err)
			for i := 1; i < len(live); i += 2 {
				require.NoError(t, g.retire(live[i], nil))
			}
			require.NoError(t, g.retire(x, nil))
			require.NoError(t, g.DefaultStream().Sync())
			half, err := g.Alloc(total/2, nil)
			require.NoError(t, err, "allocation works again")
			require.NoError(t, g.Free(half))
			require.NoError(t, g.Check())
			st := g.Stats()
			t.Logf("%d stitches, %d retries, %d out of memory, %d driver frees", st.Stitches, st.Retries, st.OOMs, st.DriverFrees)
		})
	}
}

// Two processes on one GPU, each held to its fraction.
func TestGPUTwoProcesses(t *testing.T) {
	gputest.Need(t)
	const child = "CUPOOL_GPU_CHILD"
	if os.Getenv(child) == "" {
		exe, err := os.Executable()
		require.NoError(t, err)
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				cmd := exec.Command(exe, "-test.run", "^TestGPUTwoProcesses$", "-test.v")
				cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", child, i+1))
				out, err := cmd.CombinedOutput()
				t.Logf("process %d: %s", i+1, out)
				if err != nil {
					t.Errorf("process %d: %v", i+1, err)
				}
			})
		}
		wg.Wait()
		return
	}
	g := newGPU(t, cupool.Config{Fraction: 0.4})
	g.most = testkit.Choose[int64](g.most, 1<<20)
	limit := g.Stats().Limit
	var live []stamped
	for {
		b, err := g.Alloc(limit/16, nil)
		if err != nil {
			var oom *cupool.OOMError
			require.ErrorAs(t, err, &oom)
			require.LessOrEqual(t, oom.Reserved, limit)
			t.Log(oom)
			break
		}
		x, err := g.fill(b, g.DefaultStream(), uint32(len(live)))
		require.NoError(t, err)
		live = append(live, x)
	}
	require.GreaterOrEqual(t, len(live), 15, "the fraction is this process's own")
	for _, x := range live {
		require.NoError(t, g.retire(x, nil))
	}
	require.NoError(t, g.DefaultStream().Sync())
	require.NoError(t, g.churn(rand.New(rand.NewPCG(1, 1)), g.DefaultStream(), nil, 100, func(i int) bool { return i >= 2000 }))
	require.NoError(t, g.DefaultStream().Sync())
}
