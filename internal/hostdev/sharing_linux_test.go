package hostdev_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/hostdev"
)

// openShareable opens a device whose memory can be exported.
func openShareable(t *testing.T) *hostdev.Device {
	d, err := hostdev.Open(hostdev.Config{Shareable: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestShareRange maps a device's memory in another one, of both kinds.
func TestShareRange(t *testing.T) {
	d, other := openShareable(t), openShareable(t)
	g := d.VMMGranularity()
	va, err := d.AddressReserve(4 * g)
	require.NoError(t, err)
	for i := range device.Ptr(3) {
		h, err := d.MemCreate(g)
		require.NoError(t, err)
		require.NoError(t, d.MemMap(va+i*device.Ptr(g), g, h))
		require.NoError(t, d.MemRelease(h))
	}
	require.NoError(t, d.MemSetAccess(va, 3*g))
	seg, err := d.MemAlloc(3 << 20)
	require.NoError(t, err)
	for p, pieces := range map[device.Ptr]int{va + device.Ptr(g) + 512: 2, seg + 1024: 1} {
		const n = 2 << 20
		require.NoError(t, d.Memset(p, 7, n, 0))
		require.NoError(t, d.SyncStream(0))
		r, err := d.ExportRange(p, n)
		require.NoError(t, err)
		require.Len(t, r.Pieces, pieces)
		before := other.Stats()
		q, err := other.ImportRange(r)
		require.NoError(t, err)
		again, err := other.ImportRange(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		got := make([]byte, n)
		require.NoError(t, other.CopyOut(got, q, 0))
		require.EqualValues(t, 7, got[0])
		require.EqualValues(t, 7, got[n-1])
		require.NoError(t, other.Memset(q, 8, n, 0))
		require.NoError(t, other.CloseRange(q))
		require.NoError(t, d.CopyOut(got, p, 0))
		require.EqualValues(t, 8, got[n-1])
		require.NoError(t, other.CopyOut(got, again, 0))
		require.EqualValues(t, 8, got[n-1])

		_, err = other.ExportRange(again, 1)
		require.ErrorIs(t, err, device.ErrNotSupported, "another's memory")
		start := again &^ device.Ptr(g-1)
		require.ErrorIs(t, other.MemFree(start), device.ErrInvalidRange)
		require.NoError(t, other.CloseRange(again))
		require.ErrorIs(t, other.CloseRange(again), device.ErrInvalidRange)
		require.Equal(t, before, other.Stats())
	}
	require.NoError(t, d.MemUnmap(va, 3*g))
	require.NoError(t, d.MemFree(seg))
	require.Zero(t, d.Stats().UsedBytes)
	_, err = d.ExportRange(va, 1)
	require.ErrorIs(t, err, device.ErrInvalidRange)
	_, err = d.ExportRange(seg, 0)
	require.ErrorIs(t, err, device.ErrInvalidRange)
}

// TestShareRangeOption: memory that was not made for it cannot be exported.
func TestShareRangeOption(t *testing.T) {
	d, err := hostdev.Open(hostdev.Config{})
	require.NoError(t, err)
	p, err := d.MemAlloc(1 << 20)
	require.NoError(t, err)
	_, err = d.ExportRange(p, 1)
	require.ErrorIs(t, err, device.ErrNotSupported)
	require.ErrorContains(t, err, "HostConfig.Shareable")
	require.NoError(t, d.Close())
	_, err = d.ExportRange(p, 1)
	require.ErrorIs(t, err, device.ErrClosed)
	_, err = d.ImportRange(device.SharedRange{})
	require.ErrorIs(t, err, device.ErrClosed)
	require.ErrorIs(t, d.CloseRange(p), device.ErrClosed)
}

// TestImportRangeGarbage: what is no memory of a device is refused, and leaves nothing.
func TestImportRangeGarbage(t *testing.T) {
	d := openShareable(t)
	disk, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer disk.Close()
	p, err := d.MemAlloc(8192)
	require.NoError(t, err)
	r, err := d.ExportRange(p, 8192)
	require.NoError(t, err)
	defer r.Close()
	fd, err := unix.MemfdCreate("not sealed", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	loose := os.NewFile(uintptr(fd), "memory")
	defer loose.Close()
	require.NoError(t, loose.Truncate(8192))
	before := d.Stats()
	for name, pieces := range map[string][]device.SharedPiece{
		"none": nil, "a name": {{Size: 8192}}, "a file on disk": {{Size: 8192, File: disk}}, "one that may shrink": {{Size: 8192, File: loose}},
		"larger than the file": {{Size: 16384, File: r.Pieces[0].File}}, "part of a page": {{Size: 100, File: r.Pieces[0].File}},
		"half": {r.Pieces[0], {Size: 8192}},
	} {
		_, err := d.ImportRange(device.SharedRange{Size: 1, Pieces: pieces})
		require.Error(t, err, name)
		require.Equal(t, before, d.Stats(), name)
	}
}

// TestShareRangeLeaks: a device that is closed leaves no descriptor open.
func TestShareRangeLeaks(t *testing.T) {
	before := openFiles(t)
	d := openShareable(t)
	p, err := d.MemAlloc(1 << 20)
	require.NoError(t, err)
	_, err = d.MemCreate(d.VMMGranularity())
	require.NoError(t, err)
	r, err := d.ExportRange(p, 5)
	require.NoError(t, err)
	_, err = d.ImportRange(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NoError(t, d.Close())
	require.Equal(t, before, openFiles(t))
}

func openFiles(t *testing.T) int {
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(files)
}
