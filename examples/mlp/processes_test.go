package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/examples/internal/training"
)

// asProgram is the variable with which this test's binary is the program.
const asProgram = "MLP_TEST_AS_PROGRAM"

// A process is one that was started as the program.
type process struct {
	*exec.Cmd
	stdout io.Reader
	stderr bytes.Buffer
}

// start starts the program. The end of the test kills it.
func start(t *testing.T, env []string, flags ...string) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	args := append([]string{"-data", dataDir, "-hidden", "24"}, strings.Fields(strings.Join(flags, " "))...)
	p := &process{Cmd: exec.CommandContext(t.Context(), self, args...)}
	p.Env = append(os.Environ(), asProgram+"=1")
	p.Env = append(p.Env, env...)
	p.Stderr = &p.stderr
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

// freeAddress is an address of this computer that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// epochLines are the losses and accuracies that were printed.
func epochLines(stdout string) (lines []string) {
	for line := range strings.Lines(stdout) {
		if seen, _, ok := strings.Cut(line, "device"); ok && strings.HasPrefix(line, "epoch") {
			lines = append(lines, seen)
		}
	}
	return lines
}

// Processes learn what one does: as machines with two ranks each, and as what
// torchrun starts, a rank each. Only the first prints.
func TestProcesses(t *testing.T) {
	noLauncher(t)
	const task = "-train-samples 200 -batch 20 -epochs 3 -json"
	_, want, _ := runMLP(t.Context(), strings.Fields(task)...)
	for name, launch := range map[string]func(i int, address string) *process{
		"machines": func(i int, address string) *process {
			return start(t, nil, task, fmt.Sprintf("-gpus 2 -nodes 2 -rank %d -rendezvous %s", i, address))
		},
		"torchrun": func(i int, address string) *process {
			host, port, _ := net.SplitHostPort(address)
			return start(t, []string{fmt.Sprint("RANK=", i), "WORLD_SIZE=2", fmt.Sprint("LOCAL_RANK=", i), "MASTER_ADDR=" + host, "MASTER_PORT=" + port}, task)
		},
	} {
		t.Run(name, func(t *testing.T) {
			address := freeAddress(t)
			second, first := launch(1, address), launch(0, address)
			out, status := first.ends(t)
			require.Equal(t, training.ExitOK, status, first.stderr.String())
			require.Equal(t, epochLines(want), epochLines(out))
			var r report
			require.NoError(t, json.Unmarshal([]byte(lastLine(out)), &r))
			require.NotNil(t, r.Group)
			require.Len(t, r.Group.PeakLiveBytes, r.Group.Ranks)
			require.Zero(t, r.LeakedBlocks)

			out, status = second.ends(t)
			require.Equal(t, training.ExitOK, status, second.stderr.String())
			require.Empty(t, out)
		})
	}
}

// A process that is killed ends the others, which say who it was.
func TestKilled(t *testing.T) {
	noLauncher(t)
	for _, killed := range []int{0, 2} {
		t.Run(fmt.Sprint("rank ", killed), func(t *testing.T) {
			kill(t, killed, func(i int) string { return "-train-samples 300 -batch 30" })
		})
	}
}

// kill starts three ranks with flags of their own, and kills one of them in the
// second epoch.
func kill(t *testing.T, killed int, flags func(rank int) string) {
	t.Helper()
	address := freeAddress(t)
	var all []*process
	for i := range 3 {
		all = append(all, start(t, nil, fmt.Sprintf("%s -epochs 1000000 -nodes 3 -rank %d -rendezvous %s", flags(i), i, address)))
	}
	lines := bufio.NewScanner(all[0].stdout)
	for lines.Scan() && !strings.Contains(lines.Text(), " 2/1000000 ") {
	}
	require.NoError(t, lines.Err())
	require.NoError(t, all[killed].Process.Kill())
	for i, p := range all {
		_, status := p.ends(t)
		if i == killed {
			continue
		}
		require.Equal(t, training.ExitFailed, status, "rank %d: %s", i, p.stderr.String())
		require.Contains(t, p.stderr.String(), fmt.Sprint("rank ", killed), "rank %d", i)
		require.NotContains(t, p.stderr.String(), "leak", "rank %d", i)
	}
}

// A rank that fails ends those of its process, and its error is the one that
// counts.
func TestRankFails(t *testing.T) {
	noLauncher(t)
	status, _, stderr := runMLP(t.Context(), "-gpus", "2", "-device", "host:5MiB", "-train-samples", "1000", "-batch", "1000", "-epochs", "2")
	require.Equal(t, training.ExitFailed, status, stderr)
	require.Regexp(t, `^mlp: rank \d: .*out of memory`, stderr)
}

// Ranks that were started with other flags do not train.
func TestOtherTask(t *testing.T) {
	noLauncher(t)
	address := freeAddress(t)
	common := "-train-samples 40 -batch 20 -epochs 1 -nodes 2 -rendezvous " + address
	first, second := start(t, nil, common, "-rank 0"), start(t, nil, common, "-rank 1 -seed 5")
	var said string // by whoever sees it first, which ends the other
	for _, p := range []*process{first, second} {
		_, status := p.ends(t)
		require.Equal(t, training.ExitFailed, status, p.stderr.String())
		said += p.stderr.String()
	}
	require.Contains(t, said, "rank 1 trains something else than rank 0")
}

// Ctrl-C ends all ranks of a process.
func TestInterruptRanks(t *testing.T) {
	noLauncher(t)
	ctx, cancel := context.WithCancel(t.Context())
	var stderr bytes.Buffer
	status := run(ctx, []string{"-data", dataDir, "-hidden", "8", "-train-samples", "100", "-batch", "20", "-epochs", "50", "-gpus", "4"}, &canceller{cancel: cancel}, &stderr)
	require.Equal(t, training.ExitInterrupted, status, stderr.String())
	require.Regexp(t, `interrupted in epoch \d+ after \d of 5 steps: context canceled; 0 blocks leaked\n$`, stderr.String())
}
