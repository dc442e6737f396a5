//go:build cu

package cupool

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/cu"

	"github.com/cupool/cupool/cuda"
)

// TestCUContext opens over a context of cu, with streams and memory that cu
// made, while another context is current.
func TestCUContext(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dev, err := cu.GetDevice(0)
	require.NoError(t, err)
	mine, err := dev.MakeContext(cu.SchedAuto) // and makes it current
	require.NoError(t, err)
	s, err := cu.MakeStream(cu.DefaultStream)
	require.NoError(t, err)
	mem, err := cu.MemAlloc(4096)
	require.NoError(t, err)

	d, err := cuda.OpenContext(0)
	require.NoError(t, err)
	primary, err := cuda.Open(0)
	require.NoError(t, err)
	defer primary.Close()
	require.NotEqual(t, d.Context(), primary.Context())
	require.Equal(t, CUContext(mine), d.Context())
	assert.Zero(t, d.Ordinal())

	p := CUPtr(mem)
	require.NoError(t, d.Memset(p, 9, 4096, CUStream(s)))
	require.ErrorIs(t, d.Memset(p, 9, 4097, CUStream(s)), ErrInvalidRange)
	got := make([]byte, 4096)
	require.NoError(t, d.CopyOut(got, p, CUStream(s)))
	require.Equal(t, bytes.Repeat([]byte{9}, 4096), got)
	require.ErrorIs(t, d.DestroyStream(CUStream(s)), ErrInvalidHandle, "it is the program's")
	require.ErrorIs(t, d.MemFree(p), ErrInvalidRange, "it is the program's")
	require.ErrorIs(t, primary.OwnsStream(CUStream(s)), ErrForeignStream)

	// What a Driver over another context does leaves this thread's as it is.
	q, err := primary.MemAlloc(4096)
	require.NoError(t, err)
	e, err := primary.NewEvent()
	require.NoError(t, err)
	require.NoError(t, primary.Memset(q, 1, 4096, 0))
	require.NoError(t, primary.RecordEvent(e, 0))
	require.NoError(t, primary.CopyOut(got, q, 0))
	require.NoError(t, primary.MemFree(q))
	now, err := cu.CurrentContext()
	require.NoError(t, err)
	require.Equal(t, mine, now)

	require.NoError(t, d.Close())
	require.NoError(t, cu.MemFree(mem), "Close leaves the context and what is in it")
	require.NoError(t, s.Destroy())
	require.NoError(t, mine.Destroy())
	require.NoError(t, cu.SetCurrentContext(cu.CUContext{}))
	_, err = cuda.OpenContext(0)
	require.ErrorContains(t, err, "no context is current")
}
