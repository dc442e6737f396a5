//go:build unix

package main

import (
	"bufio"
	"bytes"
	"io"
	stdnet "net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/internal/testkit"
)

// SIGTERM, by which torchrun ends its ranks, is an interruption also for a rank that
// waits for another one.
func TestRankInterrupted(t *testing.T) {
	needTwo(t)
	host, port, err := stdnet.SplitHostPort(testkit.FreeAddress(t))
	require.NoError(t, err)
	const args = "-train-samples 64 -test-samples 48 -batch 16 -epochs 1000000 -hidden 8 -shift 0 -device cuda"
	first, second := rankOf(t, 2, 0, host, port, args), rankOf(t, 2, 1, host, port, args)
	var stderr bytes.Buffer
	first.Stderr = &stderr
	stdout, err := first.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, first.Start())
	require.NoError(t, second.Start())
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "epoch") {
	}
	require.NoError(t, lines.Err())
	require.NoError(t, second.Process.Signal(syscall.SIGSTOP)) // so the first one waits for it
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, first.Process.Signal(syscall.SIGTERM))
	_, err = io.Copy(io.Discard, stdout)
	require.NoError(t, err)
	_ = first.Wait() // the status says it
	require.NoError(t, second.Process.Kill())
	_ = second.Wait()
	require.Equal(t, training.ExitInterrupted, first.ProcessState.ExitCode(), stderr.String())
	require.Regexp(t, `^gorgonia: interrupted in epoch \d+ after \d of 4 steps: terminated signal received\n$`, stderr.String())
}
