//go:build gpu

package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/nccl"
)

// files is a rendezvous in a directory: a file for each key.
type files struct {
	dir        string
	rank, size int
}

func (f files) Rank() int { return f.rank }

func (f files) Size() int { return f.size }

func (f files) Set(key string, value []byte) error {
	name := filepath.Join(f.dir, key)
	return errors.Join(os.WriteFile(name+".new", value, 0o600), os.Rename(name+".new", name))
}

func (f files) Get(ctx context.Context, key string) ([]byte, error) {
	for {
		v, err := os.ReadFile(filepath.Join(f.dir, key))
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return v, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// What the processes that a test starts find in their environment.
const (
	roleVar = "CUPOOL_NCCL_ROLE"
	rankVar = "CUPOOL_NCCL_RANK"
	sizeVar = "CUPOOL_NCCL_SIZE"
	dirVar  = "CUPOOL_NCCL_DIR"
)

// steps is how many sums the processes make.
const steps = 20

// runRole is a rank in a process of its own. It returns the exit status.
func runRole(role string) int {
	f := files{dir: os.Getenv(dirVar)}
	f.rank, _ = strconv.Atoi(os.Getenv(rankVar))
	f.size, _ = strconv.Atoi(os.Getenv(sizeVar))
	if err := process(role, f); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func process(role string, f files) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	d, err := cuda.Open(f.rank)
	if err != nil {
		return err
	}
	pool, err := cupool.New(cupool.Config{Driver: d})
	if err != nil {
		return err
	}
	cfg := nccl.Config{}
	if role == "late" {
		cfg.Timeout = 2 * time.Second
	}
	c, err := nccl.New(ctx, f, pool, cfg)
	if err != nil {
		return err
	}
	sum, err := newPlace(rank{c, pool}, nil, make([]float64, 50_000))
	if err != nil {
		return err
	}
	for i := range steps {
		if f.rank == f.size-1 && i == steps/2 {
			switch role {
			case "dies":
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			case "late":
				<-ctx.Done() // the test ends it
			}
		}
		if err := step(c, pool, f, sum, float64(i)); err != nil {
			return err
		}
	}
	return first(sum.b.Free(), c.Close(), pool.Close(), d.Close())
}

// step sums what the ranks have, and checks it.
func step(c *nccl.Comm, pool *cupool.Pool, f files, sum place[float64], at float64) error {
	values := make([]float64, sum.b.Len())
	for k := range values {
		values[k] = float64(f.rank+k) + at
	}
	if err := first(sum.b.CopyFrom(values), c.AllReduce(sum.m, sum.m, dist.Sum, nil)); err != nil {
		return err
	}
	got, err := sum.b.ToHost()
	if failed := c.Err(); failed != nil || err != nil {
		return errors.Join(failed, err)
	}
	for k := range values {
		if want := float64(f.size)*(float64(k)+at) + float64(f.size*(f.size-1)/2); got[k] != want {
			if failed := late(c); failed != nil { // the stream was told to go on
				return failed
			}
			return fmt.Errorf("rank %d: element %d is %v, not %v", f.rank, k, got[k], want)
		}
	}
	return nil
}

// late returns the error that a Comm notices after its stream has ended early.
func late(c *nccl.Comm) error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err := c.Err(); err != nil {
			return err
		}
	}
	return nil
}

// start runs n ranks in processes of their own, and returns what they print and
// whether they succeed. The last one is killed when all others have ended.
func start(t *testing.T, role string, n int, env ...string) (out []string, ok []bool) {
	t.Helper()
	skipWithout(t, n)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, ok = make([]string, n), make([]bool, n)
	dir := t.TempDir()
	last, endLast := context.WithCancel(ctx)
	defer endLast()
	var others, all sync.WaitGroup
	for i := range n {
		within := ctx
		if i == n-1 {
			within = last
		} else {
			others.Add(1)
		}
		all.Go(func() {
			cmd := exec.CommandContext(within, os.Args[0])
			cmd.Env = append(append(os.Environ(), roleVar+"="+role, rankVar+"="+strconv.Itoa(i), sizeVar+"="+strconv.Itoa(n), dirVar+"="+dir), env...)
			text, err := cmd.CombinedOutput()
			out[i], ok[i] = string(text), err == nil
			if i < n-1 {
				others.Done()
			}
		})
	}
	others.Wait()
	if role != "sums" {
		endLast()
	}
	all.Wait()
	require.NoError(t, ctx.Err(), "the processes hang: %q", out)
	return out, ok
}

// TestProcesses has ranks in processes of their own.
func TestProcesses(t *testing.T) {
	for _, n := range groups(t) {
		out, ok := start(t, "sums", n)
		for i := range ok {
			require.True(t, ok[i], "rank %d of %d: %s", i, n, out[i])
		}
	}
}

// TestProcessDies kills the last process: all others notice and end.
func TestProcessDies(t *testing.T) {
	if !fakecuda.Loaded() {
		t.Skip("NCCL sees the death of another process of the machine only by the rendezvous")
	}
	out, ok := start(t, "dies", 4)
	for i := range 4 {
		require.False(t, ok[i], "rank %d", i)
	}
	for i := range 3 {
		require.Contains(t, out[i], dist.ErrRank.Error(), "rank %d", i)
		require.Contains(t, out[i], "ncclRemoteError", "rank %d", i)
	}
}

// TestProcessIsLate stops the last process: all others end after their Timeout.
func TestProcessIsLate(t *testing.T) {
	out, ok := start(t, "late", 4)
	for i := range 3 {
		require.False(t, ok[i], "rank %d", i)
		require.Contains(t, out[i], dist.ErrRank.Error(), "rank %d", i)
	}
}

// TestProcessesAreSlow has all ranks' work take longer, so that it is done when
// the calls have long returned.
func TestProcessesAreSlow(t *testing.T) {
	if !fakecuda.Loaded() {
		t.Skip("only the stand-in can be slowed down")
	}
	out, ok := start(t, "sums", 2, "FAKECUDA_DELAY_US=2000")
	require.Equal(t, []bool{true, true}, ok, "%q", out)
}
