package nccl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/commtest"
	"github.com/cupool/cupool/nccl"
)

// roleVar is what the processes that a test starts do: "sums", the same in registered
// memory ("registered"), or, of the last rank, "stops" and "dies".
const roleVar = "CUPOOL_NCCL_ROLE"

// timeoutVar is the Timeout of the ranks of such processes.
const timeoutVar = "CUPOOL_NCCL_TIMEOUT"

// runRole is a rank in a process of its own. It returns the exit status.
func runRole(role string) int {
	if err := process(role); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func process(role string) error {
	l, err := dist.FromEnv()
	if err != nil {
		return err
	}
	d, err := cuda.Open(l.LocalRank)
	if err != nil {
		return err
	}
	pool, err := cupool.New(cupool.Config{Driver: d})
	if err != nil {
		return err
	}
	timeout, _ := time.ParseDuration(os.Getenv(timeoutVar)) // 0 where there is none
	cfg := nccl.Config{Rank: l.Rank, Size: l.Size, Address: l.Address, Token: l.Token, Name: role, Timeout: timeout}
	c, err := nccl.New(context.Background(), pool, cfg)
	if err != nil {
		return err
	}
	for i := range 20 {
		if i == 10 && l.Rank == l.Size-1 {
			switch role {
			case "stops":
				fmt.Println("stopped")
				select {}
			case "dies":
				fmt.Println("stopped")
				self, err := os.FindProcess(os.Getpid())
				return errors.Join(err, self.Kill())
			}
		}
		if err := sumOfRanks(rankOf(c, pool), float64(i), role == "registered"); err != nil {
			return err
		}
	}
	return commtest.First(c.Close(), pool.Close(), d.Close())
}

// sumOfRanks sums what the ranks have, in memory that is registered if so asked, and
// checks it.
func sumOfRanks(r rank, at float64, registered bool) error {
	values, want := make([]float64, 50_000), make([]float64, 50_000)
	for k := range values {
		values[k] = float64(r.Rank()+k) + at
		want[k] = float64(r.Size())*(float64(k)+at) + float64(r.Size()*(r.Size()-1)/2)
	}
	p, err := commtest.NewPlace(r.Member, values)
	if err != nil {
		return err
	}
	block, err := r.Pool.Lookup(p.Ptr())
	if err == nil && registered {
		err = r.Register(block)
	}
	if err := commtest.First(err, r.AllReduce(p.M, p.M, dist.Sum, r.Stream), r.Stream.Sync()); err != nil {
		return err
	}
	if registered {
		if err := r.Deregister(block); err != nil {
			return err
		}
	}
	err = p.Is(want)
	if err != nil { // the stream may have been told to go on
		return errors.Join(eventually(r.Comm), err)
	}
	return nil
}

// start starts n ranks in processes of their own.
func start(t *testing.T, role string, n int, env ...string) (all []*exec.Cmd) {
	t.Helper()
	skipWithout(t, n)
	host, port, err := net.SplitHostPort(testkit.FreeAddress(t))
	require.NoError(t, err)
	for i := range n {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(append(os.Environ(), roleVar+"="+role, "RANK="+strconv.Itoa(i), "LOCAL_RANK="+strconv.Itoa(i), "WORLD_SIZE="+strconv.Itoa(n),
			"MASTER_ADDR="+host, "MASTER_PORT="+port, "CUPOOL_DIST_TOKEN=secret"), env...)
		cmd.Stdout = new(bytes.Buffer)
		cmd.Stderr = cmd.Stdout
		require.NoError(t, cmd.Start())
		all = append(all, cmd)
	}
	return all
}

// TestProcesses has ranks in processes of their own, also where all work takes
// longer, so that it is done when the calls have long returned.
func TestProcesses(t *testing.T) {
	for _, n := range groups(t) {
		for _, c := range []struct{ role, delay string }{{"sums", "0"}, {"sums", "2000"}, {"registered", "0"}} {
			t.Run(fmt.Sprint(n, " ", c), func(t *testing.T) {
				for i, cmd := range start(t, c.role, n, "FAKECUDA_DELAY_US="+c.delay) {
					require.NoError(t, cmd.Wait(), "rank %d of %d: %s", i, n, cmd.Stdout)
				}
			})
		}
	}
}

// TestProcessEnds has the last process stop, or die: all others end. NCCL does not
// see the death of another process of its machine, so the Timeout ends them.
func TestProcessEnds(t *testing.T) {
	n := upTo(t, 3)
	for _, role := range []string{"dies", "stops"} {
		for within := 2 * brief(); ; within *= 2 { // longer, until the last one has come so far
			all := start(t, role, n, fmt.Sprint(timeoutVar, "=", within))
			last := all[n-1]
			for i, cmd := range all[:n-1] {
				require.Error(t, cmd.Wait(), "rank %d", i)
				require.Contains(t, fmt.Sprint(cmd.Stdout), dist.ErrRank.Error(), "rank %d", i)
			}
			_ = last.Process.Kill()
			_ = last.Wait()
			if fmt.Sprint(last.Stdout) == "stopped\n" {
				break
			}
			require.Less(t, within, patience, "%s", last.Stdout)
		}
	}
}
