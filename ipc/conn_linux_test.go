package ipc

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWatch: a process is there until it has ended.
func TestWatch(t *testing.T) {
	own, err := watch(os.Getpid())
	require.NoError(t, err)
	defer own.close()
	stop := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() { close(stop) }) // it has looked more than once
	require.False(t, own.wait(stop))

	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	p, err := watch(cmd.Process.Pid)
	require.NoError(t, err)
	defer p.close()
	require.NoError(t, cmd.Process.Kill())
	require.True(t, p.wait(nil))
	require.Error(t, cmd.Wait())
	_, err = watch(cmd.Process.Pid)
	require.ErrorIs(t, err, ErrGone)
}
