package training

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.AsProgram(func() {
		grace = 50 * time.Millisecond
		Main(func(context.Context, []string, io.Writer, io.Writer) int {
			fmt.Println("running")
			time.Sleep(time.Hour)
			return ExitOK
		})
	})
	os.Exit(m.Run())
}

// full is a file on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A report that cannot be written is a failure.
func TestEndOnFullDisk(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		var stderr bytes.Buffer
		require.Equal(t, ExitFailed, End("mlp", Report{}, nil, &Options{JSON: asJSON}, full{}, &stderr))
		require.Equal(t, "mlp: no space left on device\n", stderr.String())
	}
}

// SIGTERM ends a training that waits for a device which is never done.
func TestMainDeviceNeverDone(t *testing.T) {
	p := testkit.Program(t, "")
	var stderr bytes.Buffer
	p.Stderr = &stderr
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	_ = p.Wait() // the status says it
	require.Equal(t, ExitInterrupted, p.ProcessState.ExitCode())
	require.Regexp(t, `: interrupted, and the devices are not done after 50ms: terminated signal received\n$`, stderr.String())
}
