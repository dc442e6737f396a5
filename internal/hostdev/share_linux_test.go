package hostdev_test

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/hostdev"
	"github.com/cupool/cupool/internal/testkit"
)

// TestImportOtherFiles: what is not the memory of a pool is refused, as its pages
// may go away while they are mapped.
func TestImportOtherFiles(t *testing.T) {
	d, _, _ := openPools(t)
	file, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer file.Close()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	zero, err := os.Open("/dev/zero")
	require.NoError(t, err)
	defer zero.Close()
	fd, err := unix.MemfdCreate("not sealed", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	memory := os.NewFile(uintptr(fd), "memory")
	defer memory.Close()
	for _, f := range []*os.File{file, r, zero, memory} {
		_, err := d.ImportNativePool(int(f.Fd()))
		require.ErrorIs(t, err, device.ErrInvalidHandle, f.Name())
		require.ErrorContains(t, err, "not the memory of a pool")
	}
}

// TestPoolCannotShrink: the process that made a pool cannot take its pages away.
func TestPoolCannotShrink(t *testing.T) {
	d, s, _ := openPools(t)
	fd, _ := sharedBlock(t, d, s)
	require.ErrorIs(t, unix.Ftruncate(fd, 0), unix.EPERM)
}

// sharedBlock returns a pool's descriptor and a block of it.
func sharedBlock(t testing.TB, d *hostdev.Device, s device.Stream) (int, device.PoolPointer) {
	h, err := d.NewNativePool(device.PoolConfig{Shareable: true})
	require.NoError(t, err)
	fd, err := d.ExportNativePool(h)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	p, err := d.AllocAsync(5000, h, s)
	require.NoError(t, err)
	require.NoError(t, d.SyncStream(s))
	data, err := d.ExportNativePointer(p)
	require.NoError(t, err)
	return fd, data
}

// FuzzImportNativePointer: whatever another process says of its block, importing
// it fails, or maps memory that can be written from its first byte to its last.
func FuzzImportNativePointer(f *testing.F) {
	d, err := hostdev.Open(hostdev.Config{Capacity: 64 << 20})
	require.NoError(f, err)
	s, err := d.NewStream()
	require.NoError(f, err)
	fd, data := sharedBlock(f, d, s)
	pool, err := d.ImportNativePool(fd)
	require.NoError(f, err)
	pointer := func(off, size uint64) []byte {
		b := data[:8:8]
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, off), size)
	}
	f.Add(data[:])
	f.Add(make([]byte, 64))
	for _, size := range []uint64{0, 1, 4096, 8192, 1 << 21, 1 << 22, 1 << 47, 1 << 62, 1<<63 - 4096, 1 << 63, 1<<64 - 4096} {
		for _, off := range []uint64{0, 4096, 1, 1<<63 - 4096, 1<<64 - 4096} {
			f.Add(pointer(off, size))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var data device.PoolPointer
		copy(data[:], b)
		var p device.Ptr
		var err error
		testkit.RequireAllocates(t, 64<<10, 0, 0, func() {
			if p != 0 { // a second measurement
				require.NoError(t, d.FreeAsync(p, s))
				require.NoError(t, d.SyncStream(s))
			}
			p, err = d.ImportNativePointer(pool, data)
		})
		if err != nil {
			require.ErrorIs(t, err, device.ErrInvalidRange)
			return
		}
		size := d.NativePointerSize(p)
		require.EqualValues(t, binary.LittleEndian.Uint64(data[16:]), size)
		require.NoError(t, d.Memset(p, 1, size, s))
		require.NoError(t, d.SyncStream(s))
		require.NoError(t, d.FreeAsync(p, s))
		require.NoError(t, d.SyncStream(s))
	})
}
