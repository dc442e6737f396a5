package cuda

import (
	"bytes"
	"encoding/hex"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
)

// These tests give something to another process, which is this program again
// with a variable set.

const (
	shareVar  = "CUPOOL_TEST_SHARE"
	shareSize = 3 << 20
)

// shared returns what the parent has sent, or ok false in the parent.
func shared(t *testing.T) (data [64]byte, ok bool) {
	s := os.Getenv(shareVar)
	if s == "" {
		return data, false
	}
	n, err := hex.Decode(data[:], []byte(s))
	require.NoError(t, err)
	require.Equal(t, len(data), n)
	return data, true
}

func share(data [64]byte) string { return shareVar + "=" + hex.EncodeToString(data[:]) }

// expect checks that memory holds one value, and then fills it with another.
func expect(t *testing.T, d *driver, p Ptr, s StreamHandle, want, next byte) {
	t.Helper()
	got := make([]byte, shareSize)
	require.NoError(t, d.CopyOut(got, p, s))
	require.Equal(t, bytes.Repeat([]byte{want}, shareSize), got)
	require.NoError(t, d.Memset(p, next, shareSize, s))
	require.NoError(t, d.SyncStream(s))
}

func TestShareMemory(t *testing.T) {
	d := openTest(t)
	s := newStream(t, d)
	if h, ok := shared(t); ok {
		p, err := d.OpenMemory(IPCHandle(h))
		require.NoError(t, err)
		again, err := d.OpenMemory(IPCHandle(h))
		require.NoError(t, err)
		require.NoError(t, d.CloseMemory(again))
		expect(t, d, p, s, 7, 8) // it is open still
		require.NoError(t, d.CloseMemory(p))
		require.ErrorIs(t, d.CloseMemory(p), device.ErrInvalidRange)
		return
	}
	p := alloc(t, d, shareSize)
	require.NoError(t, d.Memset(p, 7, shareSize, s))
	require.NoError(t, d.SyncStream(s))
	h, err := d.ExportMemory(p)
	require.NoError(t, err)
	child(t, share(h))
	expect(t, d, p, s, 8, 0)

	_, err = d.OpenMemory(h)
	require.Error(t, err, "in the same process")
	require.ErrorIs(t, d.CloseMemory(p), device.ErrInvalidRange)
}

func TestSharePool(t *testing.T) {
	d := openTest(t)
	s := newStream(t, d)
	if d.ctx.attribute(attrPoolHandles)&cudadrv.HandleFD == 0 {
		t.Skip("the GPU does not share native pools by file descriptor")
	}
	if data, ok := shared(t); ok {
		pool, err := d.ImportNativePool(3)
		require.NoError(t, err)
		p, err := d.ImportNativePointer(pool, PoolPointer(data))
		require.NoError(t, err)
		expect(t, d, p, s, 5, 6)
		require.NoError(t, d.FreeAsync(p, s)) // before the one who made it frees it
		require.NoError(t, d.SyncStream(s))
		return
	}
	pool, err := d.NewNativePool(NativePoolConfig{Shareable: true})
	require.NoError(t, err)
	p, err := d.AllocAsync(shareSize, pool, s)
	require.NoError(t, err)
	require.NoError(t, d.Memset(p, 5, shareSize, s))
	require.NoError(t, d.SyncStream(s))
	fd, err := d.ExportNativePool(pool) // before its pointers
	require.NoError(t, err)
	data, err := d.ExportNativePointer(p)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "pool")
	defer f.Close()
	child(t, share(data), f)
	expect(t, d, p, s, 6, 0)
	require.NoError(t, d.FreeAsync(p, s))
	require.NoError(t, d.SyncStream(s))
}
