//go:build gpu

package main

import (
	"bufio"
	"bytes"
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
	needRanks(t, 4)
	_, want, _ := runMLP(t.Context(), strings.Fields(onGPUs+" -json")...)
	for name, launch := range map[string]func(i int, address string) *process{
		"machines": func(i int, address string) *process {
			return start(t, nil, onGPUs, fmt.Sprintf("-json -device cuda:%d -gpus 2 -nodes 2 -rank %d -rendezvous %s", 2*i, i, address))
		},
		"torchrun": func(i int, address string) *process {
			host, port, _ := net.SplitHostPort(address)
			return start(t, []string{fmt.Sprint("RANK=", i), "WORLD_SIZE=2", fmt.Sprint("LOCAL_RANK=", i), "MASTER_ADDR=" + host, "MASTER_PORT=" + port}, onGPUs, "-json")
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

// A process that is killed in the second epoch ends the others, though their GPUs
// wait for it.
func TestKilled(t *testing.T) {
	for _, killed := range []int{0, 2} {
		t.Run(fmt.Sprint("rank ", killed), func(t *testing.T) {
			needRanks(t, 3)
			address := freeAddress(t)
			var all []*process
			for i := range 3 {
				all = append(all, start(t, nil, fmt.Sprintf("-device cuda:%d -shift 0 -hidden 8 -train-samples 12 -batch 6 -epochs 1000000 -nodes 3 -rank %d -rendezvous %s", i, i, address)))
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

// Ranks that were started with other flags do not train.
func TestOtherTask(t *testing.T) {
	needRanks(t, 2)
	address := freeAddress(t)
	common := onGPUs + " -nodes 2 -rendezvous " + address
	first, second := start(t, nil, common, "-rank 0"), start(t, nil, common, "-device cuda:1 -rank 1 -seed 5")
	var said string // by whoever sees it first, which ends the other
	for _, p := range []*process{first, second} {
		_, status := p.ends(t)
		require.Equal(t, training.ExitFailed, status, p.stderr.String())
		said += p.stderr.String()
	}
	require.Contains(t, said, "rank 1 trains something else than rank 0")
}
