package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/internal/cudalibs"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
	"github.com/cupool/cupool/nccl"
)

// needGPUs skips where there are not so many, or no NCCL to connect several.
func needGPUs(t *testing.T, n int) {
	t.Helper()
	gputest.Need(t)
	device, err := cupool.Open(fmt.Sprint("cuda:", n-1))
	if err != nil {
		t.Skip(err)
	}
	require.NoError(t, device.Close())
	if _, err := nccl.Version(""); err != nil && n > 1 {
		t.Skip(err)
	}
}

// requireClose compares losses that were printed, which may be apart by so much.
func requireClose(t *testing.T, want, got losses, apart float64) {
	t.Helper()
	require.Len(t, got.loss, len(want.loss))
	require.InDeltaSlice(t, want.loss, got.loss, apart)
	require.InDeltaSlice(t, want.accuracy, got.accuracy, 2.1, "percent: an image of 48 apart")
}

// Ranks learn what one learns with the same batch, whatever their number.
func TestRanks(t *testing.T) {
	for _, flags := range []string{"-shift 0", "-shift 1", "-optimizer adam -lr 0.002", "-shift 0 -bucket 1"} {
		want, _ := trained(t, flags)
		require.Greater(t, want.loss[0]-want.loss[2], 0.1, "it learns")
		for _, n := range []int{1, 2, 4, 16} {
			t.Run(fmt.Sprint(flags, " -gpus ", n), func(t *testing.T) {
				got, r := trained(t, fmt.Sprint(flags, " -gpus ", n))
				requireClose(t, want, got, 2e-4)
				require.Len(t, r.Group.PeakLiveBytes, n)
			})
		}
	}
}

// GPUs learn what the host learns, from the same seed, alone or several, step by
// step or by graphs, and leave nothing to it.
func TestGPUs(t *testing.T) {
	for _, c := range []struct {
		gpus          int
		flags, flags2 string // on both, and on GPUs
	}{
		{1, "-shift 0", ""},
		{1, "-shift 1", ""},
		{1, "-shift 0 -optimizer adam", ""},
		{1, "-shift 0", "-graph"},
		{1, "-shift 0 -optimizer adam", "-graph"},
		{1, "-shift 0", "-gpus 1"},
		{2, "-shift 0", "-gpus 2"},
		{2, "-shift 0", "-gpus 2 -graph -bucket 1"},
		{8, "-shift 0 -train-samples 32 -epochs 2", "-gpus 8"},
	} {
		t.Run(c.flags+" "+c.flags2, func(t *testing.T) {
			needGPUs(t, c.gpus)
			defer func(old int) { graphSteps = old }(graphSteps)
			graphSteps = 3 // of 4
			want, _ := trained(t, c.flags)
			got, r := trained(t, c.flags+" -device cuda "+c.flags2)
			if r.FallbackOps > 0 && strings.Contains(r.Device, "fakecuda") {
				t.Skip("there are no kernels: the stand-in driver was built without a C++ compiler")
			}
			require.Zero(t, r.FallbackOps)
			require.Zero(t, r.DriverAllocsLastEpoch)
			requireClose(t, want, got, 1e-3)
		})
	}
}

// A process is one that was started as the program.
type process struct {
	*exec.Cmd
	stdout io.Reader
	stderr bytes.Buffer
}

// start starts the program. The end of the test kills it.
func start(t *testing.T, env, args string) *process {
	t.Helper()
	p := &process{Cmd: testkit.Program(t, few+args, strings.Fields(env)...)}
	p.Stderr = &p.stderr
	var err error
	p.stdout, err = p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	return p
}

// ends waits for the process, and returns what it printed and its status.
func (p *process) ends(t *testing.T) (stdout string, status int) {
	t.Helper()
	all, err := io.ReadAll(p.stdout)
	require.NoError(t, err)
	_ = p.Wait() // the status says it
	return string(all), p.ProcessState.ExitCode()
}

// Ctrl-C and SIGTERM end a process with all its ranks, which give everything back.
func TestSignals(t *testing.T) {
	for flags, sig := range map[string]os.Signal{"": os.Interrupt, " -gpus 4": syscall.SIGTERM} {
		p := start(t, "", "-epochs 1000000"+flags)
		lines := bufio.NewReader(p.stdout)
		p.stdout = lines
		for line := ""; !strings.HasPrefix(line, "epoch"); {
			var err error
			line, err = lines.ReadString('\n')
			require.NoError(t, err)
		}
		require.NoError(t, p.Process.Signal(sig))
		_, status := p.ends(t)
		require.Equal(t, training.ExitInterrupted, status, p.stderr.String())
		require.Regexp(t, `^mlp: (rank \d: )?interrupted in epoch \d+ after \d of 4 steps: .*\n$`, p.stderr.String())
	}
}

// So does one whose ranks wait for those of other machines.
func TestSignalBeforeAllCame(t *testing.T) {
	needGPUs(t, 2)
	address := testkit.FreeAddress(t)
	p := start(t, "", "-device cuda -gpus 1 -nodes 2 -rank 0 -rendezvous "+address)
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		return err == nil && c.Close() == nil
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	_, status := p.ends(t)
	require.Equal(t, training.ExitInterrupted, status, p.stderr.String())
	require.Regexp(t, `^mlp: nccl: .*terminated signal received\n$`, p.stderr.String())
}

// Where there is no driver, the program says so.
func TestNoDriver(t *testing.T) {
	p := start(t, cudalibs.Driver+"=/nowhere/libcuda.so.1", "-device cuda")
	stdout, status := p.ends(t)
	require.Equal(t, training.ExitFailed, status)
	require.Empty(t, stdout)
	require.Contains(t, p.stderr.String(), "there is no NVIDIA driver here")
	require.Equal(t, 1, strings.Count(p.stderr.String(), "\n"), p.stderr.String())
}

// Processes learn what one does: as machines with two ranks each, and as what
// torchrun starts, a rank each. Only the first prints.
func TestProcesses(t *testing.T) {
	needGPUs(t, 2)
	want, _ := trained(t, "-shift 0")
	for name, launch := range map[string]func(i int, address string) *process{
		"machines": func(i int, address string) *process {
			return start(t, "", fmt.Sprintf("-shift 0 -json -device cuda:%d -gpus 2 -nodes 2 -rank %d -rendezvous %s", 2*i, i, address))
		},
		"torchrun": func(i int, address string) *process {
			host, port, _ := net.SplitHostPort(address)
			return start(t, fmt.Sprintf("RANK=%d LOCAL_RANK=%d WORLD_SIZE=2 MASTER_ADDR=%s MASTER_PORT=%s", i, i, host, port), "-shift 0 -json -device cuda")
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "machines" {
				needGPUs(t, 4)
			}
			address := testkit.FreeAddress(t)
			second, first := launch(1, address), launch(0, address)
			out, status := first.ends(t)
			require.Equal(t, training.ExitOK, status, first.stderr.String())
			got, _ := printed(t, out)
			requireClose(t, want, got, 1e-3)

			out, status = second.ends(t)
			require.Equal(t, training.ExitOK, status, second.stderr.String())
			require.Empty(t, out)
		})
	}
}

// A process that is killed in the second epoch ends the others, though their GPUs
// wait for it.
func TestKilled(t *testing.T) {
	for _, c := range []struct{ ranks, killed int }{{2, 0}, {2, 1}, {3, 0}, {3, 2}} {
		t.Run(fmt.Sprintf("rank %d of %d", c.killed, c.ranks), func(t *testing.T) {
			needGPUs(t, c.ranks)
			address, killed := testkit.FreeAddress(t), c.killed
			var all []*process
			for i := range c.ranks {
				all = append(all, start(t, "", fmt.Sprintf("-device cuda:%d -shift 0 -train-samples 12 -batch 6 -epochs 1000000 -timeout 20s -nodes %d -rank %d -rendezvous %s", i, c.ranks, i, address)))
			}
			lines := bufio.NewScanner(all[0].stdout)
			for lines.Scan() && !strings.Contains(lines.Text(), " 2/1000000 ") {
			}
			require.NoError(t, lines.Err())
			require.NoError(t, all[killed].Process.Kill())
			for i, p := range all {
				if _, status := p.ends(t); i != killed {
					require.Equal(t, training.ExitFailed, status, "rank %d: %s", i, p.stderr.String())
					require.NotContains(t, p.stderr.String(), "leak", "rank %d", i)
				}
			}
		})
	}
}
