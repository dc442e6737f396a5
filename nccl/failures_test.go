package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit/commtest"
	"github.com/cupool/cupool/nccl"
	"github.com/cupool/cupool/nccl/internal/meet"
)

// onStandIn skips what real GPUs cannot be made to do.
func onStandIn(t *testing.T) {
	t.Helper()
	if !fakecuda.Loaded() {
		t.Skip("only the stand-in fails on purpose")
	}
}

// brief is a Timeout that a test waits for. It bounds the making of ranks, too, which takes
// NCCL seconds on GPUs: where it is too short for that, a test takes a longer one.
func brief() time.Duration {
	if fakecuda.Loaded() {
		return time.Second
	}
	return 10 * time.Second
}

// newBrief makes two ranks with a Timeout that a test waits for, and which have worked.
func newBrief(t *testing.T) []rank {
	t.Helper()
	pools := openPools(t, 2, cupool.Config{})
	for within := brief(); ; within *= 2 { // longer, until neither was late
		comms, err := nccl.NewLocal(t.Context(), pools, nccl.Config{Timeout: within})
		if err == nil {
			err = errors.Join(sumAll(comms, pools), comms[0].Err(), comms[1].Err())
		}
		if err == nil {
			return ranksOf(t, comms, pools)
		}
		require.ErrorIs(t, err, dist.ErrRank)
		require.Less(t, within, patience)
		for _, c := range comms {
			require.NoError(t, c.Abort())
		}
	}
}

// eventually waits until Err is an error, and returns it.
func eventually(c *nccl.Comm) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err := c.Err(); err != nil {
			return err
		}
	}
	return nil
}

// queueSum queues a sum that the test does not look at.
func queueSum(r rank) error {
	p, err := commtest.NewPlace(r.Member, make([]float32, 100))
	if err != nil {
		return err
	}
	return errors.Join(r.AllReduce(p.M, p.M, dist.Sum, r.Stream), p.Free())
}

// TestRankAborts aborts one rank while the others wait for it.
func TestRankAborts(t *testing.T) {
	n := upTo(t, 4)
	var cfg nccl.Config
	if !fakecuda.Loaded() { // NCCL does not notice it over NVLink: the Timeout ends the wait
		cfg.Timeout = brief()
	}
	ranks := newRanks(t, n, cfg)
	require.NoError(t, each(ranks, queueSum))
	require.NoError(t, each(ranks, func(r rank) error {
		if r.Rank() == n-1 {
			return errors.Join(r.Abort(), r.Abort())
		}
		_ = queueSum(r) // it may know already
		if err := eventually(r.Comm); !errors.Is(err, dist.ErrRank) {
			return errors.Join(errors.New("no dist.ErrRank"), err)
		}
		return r.Stream.Sync() // nothing waits for ever
	}))
	for _, r := range ranks[:n-1] {
		var failed *nccl.Error
		require.ErrorAs(t, queueSum(r), &failed)
		require.Equal(t, r.Rank(), failed.Rank)
		require.Equal(t, n, failed.Size)
		if fakecuda.Loaded() {
			require.ErrorContains(t, failed, "another rank is gone")
		} else {
			require.ErrorIs(t, failed, context.DeadlineExceeded)
		}
		require.ErrorIs(t, r.Close(), dist.ErrRank)
		require.ErrorIs(t, r.Close(), cupool.ErrClosed)
		require.ErrorIs(t, queueSum(r), dist.ErrRank, "the first error stays")
	}
	require.ErrorIs(t, queueSum(ranks[n-1]), cupool.ErrClosed)
	require.ErrorIs(t, ranks[n-1].Close(), cupool.ErrClosed)
	require.NoError(t, ranks[n-1].Err())
}

// TestRankIsLate has one rank make no call: the others give up.
func TestRankIsLate(t *testing.T) {
	ranks := newBrief(t)
	require.NoError(t, queueSum(ranks[0]))
	err := eventually(ranks[0].Comm)
	require.ErrorIs(t, err, dist.ErrRank)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "Config.Timeout")
	require.NoError(t, ranks[0].Stream.Sync())
	require.ErrorIs(t, queueSum(ranks[0]), dist.ErrRank)
}

// TestCloseIsLate closes a rank whose work waits for another one.
func TestCloseIsLate(t *testing.T) {
	ranks := newBrief(t)
	require.NoError(t, queueSum(ranks[0]))
	require.ErrorIs(t, ranks[0].Close(), dist.ErrRank)
	require.NoError(t, ranks[0].Stream.Sync())
}

// TestAbortWhileWaiting aborts from another goroutine than the one that waits.
func TestAbortWhileWaiting(t *testing.T) {
	ranks := newRanks(t, 2, nccl.Config{})
	require.NoError(t, each(ranks, queueSum))
	require.NoError(t, queueSum(ranks[0]))
	synced := make(chan error)
	go func() { synced <- ranks[0].Stream.Sync() }()
	require.NoError(t, ranks[0].Abort())
	require.NoError(t, <-synced)
}

// TestAbortInAGroup aborts a rank in its Group: nothing is called.
func TestAbortInAGroup(t *testing.T) {
	r := newRanks(t, 1, nccl.Config{})[0]
	require.ErrorIs(t, r.Group(func() error { return errors.Join(queueSum(r), r.Abort()) }), cupool.ErrClosed)
	require.NoError(t, r.Err())
	require.ErrorIs(t, queueSum(r), cupool.ErrClosed)
}

// TestRankDoesNotJoin makes a group in which one rank is missing.
func TestRankDoesNotJoin(t *testing.T) {
	pool := openPools(t, 1, cupool.Config{})[0]
	for rank := range 2 {
		cfg := nccl.Config{Rank: rank, Size: 2, Folder: t.TempDir()}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := nccl.New(ctx, pool, cfg)
		require.ErrorIs(t, err, context.Canceled, "rank %d", rank)
		cfg.Timeout = 50 * time.Millisecond
		_, err = nccl.New(context.Background(), pool, cfg)
		require.ErrorIs(t, err, context.DeadlineExceeded, "rank %d", rank)
		require.ErrorIs(t, err, dist.ErrRank, "rank %d", rank)
	}
}

// TestRankDoesNotComeToNCCL makes a group in which one rank has the ID and goes no further.
func TestRankDoesNotComeToNCCL(t *testing.T) {
	pool := openPools(t, 1, cupool.Config{})[0]
	var err error
	for within := brief(); ; within *= 2 { // longer, until the ranks have met
		folder := t.TempDir()
		ctx, leave := context.WithCancel(t.Context())
		met := make(chan error, 1)
		go func() {
			_, err := meet.Share(ctx, meet.Config{Rank: 1, Size: 2, Folder: folder, Name: "nccl"}, nil)
			met <- err
		}()
		_, err = nccl.New(t.Context(), pool, nccl.Config{Size: 2, Folder: folder, Timeout: within})
		leave()
		came := <-met
		if came == nil && !strings.Contains(fmt.Sprint(err), "have not read") {
			break
		}
		require.Less(t, within, patience, "%v; %v", came, err)
	}
	require.ErrorIs(t, err, dist.ErrRank)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "other ranks did not come in time")
}

// TestCallsDiffer has ranks that make different calls, which the stand-in finds. The
// rank that is told first ends, and the other one may then be told of that alone.
func TestCallsDiffer(t *testing.T) {
	onStandIn(t)
	ranks := newRanks(t, 2, nccl.Config{})
	require.NoError(t, each(ranks, func(r rank) error {
		p, err := commtest.NewPlace(r.Member, make([]float32, 10+r.Rank()))
		if err != nil {
			return err
		}
		_ = r.AllReduce(p.M, p.M, dist.Sum, r.Stream) // it may be told already
		if err := eventually(r.Comm); err == nil {
			return errors.New("no error")
		}
		return commtest.First(r.Stream.Sync(), p.Free())
	}))
	told := errors.Join(ranks[0].Err(), ranks[1].Err())
	require.ErrorContains(t, told, " elements")
	require.ErrorContains(t, told, "ncclInvalidArgument")
}

// TestOutOfMemory has a rank without memory for NCCL: no rank waits for it.
func TestOutOfMemory(t *testing.T) {
	onStandIn(t)
	pools := openPools(t, 3, cupool.Config{})
	fakecuda.SetMemory(1, 1<<20)
	defer fakecuda.SetMemory(1, 4<<30)
	_, err := nccl.NewLocal(context.Background(), pools, nccl.Config{})
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.ErrorContains(t, err, "rank 1 of 3")
	require.ErrorContains(t, err, "cupool.Config.Limit")
}

// TestFaults has every call of NCCL fail. All ranks end, and nothing is left.
func TestFaults(t *testing.T) {
	onStandIn(t)
	t.Cleanup(fakecuda.Reset)
	const systemError, inProgressForAll = 2, 1000
	for _, call := range []string{"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclAllReduce", "ncclGroupStart",
		"ncclGroupEnd", "ncclSend", "ncclCommRegister", "ncclCommDeregister", "ncclCommFinalize", "ncclCommDestroy"} {
		pools := openPools(t, 2, cupool.Config{})
		fakecuda.Fail(call, 1, systemError, inProgressForAll)
		err := life(pools)
		fakecuda.Reset()
		var failed *nccl.Error
		require.ErrorAs(t, err, &failed, call)
		if call == "ncclGetUniqueId" {
			require.Equal(t, call, failed.Call)
		}
		require.ErrorContains(t, err, "ncclSystemError", call) // of one rank; the other may have noticed that it is gone
		for _, p := range pools {
			require.NoError(t, p.DefaultStream().Sync(), call)
			require.Zero(t, p.Stats().All.Allocation.Current, call)
		}
	}
	require.Error(t, func() error {
		fakecuda.Fail("ncclGetVersion", 1, systemError, 1)
		_, err := nccl.Version("")
		return err
	}())
}

// life makes a group, calls everything and ends it.
func life(pools []*cupool.Pool) error {
	comms, err := nccl.NewLocal(context.Background(), pools, nccl.Config{})
	if err != nil {
		return err
	}
	ranks := make([]rank, len(comms))
	for i, c := range comms {
		ranks[i] = rankOf(c, pools[i])
	}
	return each(ranks, func(r rank) error {
		b, err := r.Pool.Alloc(1<<20, nil)
		if err != nil {
			return err
		}
		p, err := commtest.NewPlace(r.Member, []float32{1, 2})
		if err != nil {
			return err
		}
		other := 1 - r.Rank()
		err = commtest.First(r.Register(b), queueSum(r), r.Group(func() error { return commtest.First(r.Send(p.M, other, r.Stream), r.Recv(p.M, other, r.Stream)) }), r.Deregister(b))
		return errors.Join(err, r.Close(), r.Pool.Free(b), p.Free())
	})
}

// TestNothingIsLeft looks for memory, goroutines and files after groups that ended
// well, were aborted or never began.
func TestNothingIsLeft(t *testing.T) {
	for _, n := range groups(t) {
		pools := openPools(t, n, cupool.Config{})
		before := freeMemory(t, pools)
		goroutines, open := runtime.NumGoroutine(), shared(t)
		for range 3 {
			comms, err := nccl.NewLocal(context.Background(), pools, nccl.Config{})
			require.NoError(t, err)
			require.NoError(t, sumAll(comms, pools))
			var wg sync.WaitGroup
			for i, c := range comms {
				wg.Go(func() {
					if i == 0 {
						_ = c.Abort()
					}
					_ = c.Close()
				})
			}
			wg.Wait()
		}
		for end := time.Now().Add(patience); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
			require.True(t, time.Now().Before(end), "%d goroutines, not %d", runtime.NumGoroutine(), goroutines)
		}
		if fakecuda.Loaded() {
			require.Equal(t, before, freeMemory(t, pools))
			require.Equal(t, open, shared(t))
		}
	}
}

// shared counts the groups whose memory, the stand-in's, this process has open.
func shared(t *testing.T) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.Contains(to, "fakenccl-") {
			n++
		}
	}
	return n
}

func sumAll(comms []*nccl.Comm, pools []*cupool.Pool) error {
	ranks := make([]rank, len(comms))
	for i, c := range comms {
		ranks[i] = rankOf(c, pools[i])
	}
	return each(ranks, func(r rank) error { return commtest.First(queueSum(r), r.Stream.Sync()) })
}

func freeMemory(t *testing.T, pools []*cupool.Pool) (free []int64) {
	t.Helper()
	for _, p := range pools {
		_, err := p.Trim(0)
		require.NoError(t, err)
		f, _, err := p.Driver().MemInfo()
		require.NoError(t, err)
		free = append(free, f)
	}
	return free
}

// A program closes its streams before the Comm, whose last look asks the driver
// nothing about them: their handles are gone.
func TestStreamsCloseFirst(t *testing.T) {
	r := newRanks(t, 1, nccl.Config{})[0]
	s, err := r.Pool.NewStream()
	require.NoError(t, err)
	b, err := cupool.BufferFrom(r.Pool, []float32{1, 2, 3}, s)
	require.NoError(t, err)
	m, err := dist.Of(b)
	require.NoError(t, err)
	require.NoError(t, r.AllReduce(m, m, dist.Sum, s))
	require.NoError(t, b.Free())
	require.NoError(t, s.Close())
	calls := []string{"cuStreamGetCtx", "cuStreamGetCaptureInfo_v2", "cuStreamGetCaptureInfo_v3"}
	if fakecuda.Loaded() {
		fakecuda.Count(true)
		t.Cleanup(func() { fakecuda.Count(false) })
	}
	require.NoError(t, r.Close())
	for _, call := range calls {
		require.Zero(t, fakecuda.Calls(call), call)
	}
}
