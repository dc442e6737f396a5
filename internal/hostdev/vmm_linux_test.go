package hostdev_test

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/cupool/cupool/internal/device"
	"github.com/cupool/cupool/internal/hostdev"
)

const gran = 2 * mib

func reserve(t testing.TB, d *hostdev.Device, size int64) device.Ptr {
	t.Helper()
	p, err := d.AddressReserve(size)
	require.NoError(t, err)
	require.Zero(t, p%gran)
	return p
}

func create(t testing.TB, d *hostdev.Device, size int64) uintptr {
	t.Helper()
	h, err := d.MemCreate(size)
	require.NoError(t, err)
	require.NotZero(t, h)
	return h
}

// mapAt maps h at p with access.
func mapAt(t testing.TB, d *hostdev.Device, p device.Ptr, size int64, h uintptr) {
	t.Helper()
	require.NoError(t, d.MemMap(p, size, h))
	require.NoError(t, d.MemSetAccess(p, size))
}

// Bytes written at one address are read at the other, also across the border
// of two handles that are far apart at home: stitching.
func TestVMMAliases(t *testing.T) {
	d := open(t, 64*mib)
	require.EqualValues(t, gran, d.VMMGranularity())
	home, stitched := reserve(t, d, 16*gran), reserve(t, d, 3*gran)
	a, b := create(t, d, gran), create(t, d, 2*gran)
	mapAt(t, d, home, gran, a)
	mapAt(t, d, home+8*gran, 2*gran, b)
	require.Equal(t, make([]byte, 2*gran), read(t, d, home+8*gran, 2*gran, 0))

	require.NoError(t, d.MemMap(stitched, gran, a))
	require.NoError(t, d.MemMap(stitched+gran, 2*gran, b))
	require.NoError(t, d.MemSetAccess(stitched, 3*gran)) // one call for both
	require.NoError(t, d.CopyIn(stitched+gran-3, []byte("abcdef"), 0))
	require.Equal(t, "abc", string(read(t, d, home+gran-3, 3, 0)))
	require.Equal(t, "def", string(read(t, d, home+8*gran, 3, 0)))
	require.NoError(t, d.Memset(home+8*gran, 'x', 2*gran, 0))
	require.Equal(t, "abcxxx", string(read(t, d, stitched+gran-3, 6, 0)))

	// A second home, and the first one gone: the pages live on.
	require.NoError(t, d.MemUnmap(home, gran))
	require.NoError(t, d.MemRelease(a))
	require.Equal(t, "abcxxx", string(read(t, d, stitched+gran-3, 6, 0)))
	require.EqualValues(t, 3*gran, d.Stats().UsedBytes)
	require.NoError(t, d.MemUnmap(stitched, 3*gran))
	require.EqualValues(t, 2*gran, d.Stats().UsedBytes)
	require.Equal(t, "x", string(read(t, d, home+8*gran, 1, 0)))
}

func TestVMMCapacity(t *testing.T) {
	d := open(t, 4*gran)
	p := reserve(t, d, 1<<40) // addresses cost nothing
	a := create(t, d, 3*gran)
	alloc(t, d, gran/2)
	_, err := d.MemCreate(gran)
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	mapAt(t, d, p, 3*gran, a)
	require.NoError(t, d.MemRelease(a))
	_, err = d.MemCreate(gran)
	require.ErrorIs(t, err, device.ErrOutOfMemory, "mapped memory is still in use")
	require.NoError(t, d.MemUnmap(p, 3*gran))
	create(t, d, 3*gran)
	_, err = d.AddressReserve(math.MaxInt64 &^ (gran - 1))
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	_, err = d.MemCreate(math.MaxInt64 &^ (gran - 1))
	require.ErrorIs(t, err, device.ErrOutOfMemory)
}

// Releasing gives pages back to the system, and a new handle is zero.
func TestVMMGivesPagesBack(t *testing.T) {
	d := open(t, 1<<30)
	p := reserve(t, d, 32*gran)
	h := create(t, d, 32*gran)
	mapAt(t, d, p, 32*gran, h)
	require.NoError(t, d.Memset(p, 1, 32*gran, 0))
	require.NoError(t, d.SyncStream(0))
	require.EqualValues(t, 32*gran, backed(t))
	require.NoError(t, d.MemUnmap(p, 32*gran))
	require.NoError(t, d.MemRelease(h))
	require.Zero(t, backed(t))
	mapAt(t, d, p, 32*gran, create(t, d, 32*gran))
	require.Equal(t, []byte{0}, read(t, d, p, 1, 0))
	require.LessOrEqual(t, backed(t), int64(gran), "one page, or a huge one")
}

// backed returns the bytes that the system holds, in memory or swapped out, for
// all handles of the devices that are open.
func backed(t testing.TB) (bytes int64) {
	t.Helper()
	const fds = "/proc/self/fd/"
	dir, err := os.ReadDir(fds)
	require.NoError(t, err)
	for _, fd := range dir {
		if name, _ := os.Readlink(fds + fd.Name()); strings.HasPrefix(name, "/memfd:cupool-hostdev") {
			var st unix.Stat_t
			require.NoError(t, unix.Stat(fds+fd.Name(), &st))
			bytes += 512 * st.Blocks
		}
	}
	return bytes
}

func TestVMMErrors(t *testing.T) {
	d := open(t, 64*mib)
	p := reserve(t, d, 8*gran)
	a, b := create(t, d, 2*gran), create(t, d, gran)
	mapAt(t, d, p+2*gran, 2*gran, a)
	released := create(t, d, gran)
	require.NoError(t, d.MemRelease(released))
	_, odd := d.AddressReserve(gran + 1)
	_, none := d.AddressReserve(0)
	_, oddMem := d.MemCreate(512)
	_, negative := d.MemCreate(-gran)
	tests := map[string]struct {
		err  error
		want error
	}{
		"reserve an odd size":       {odd, device.ErrInvalidRange},
		"reserve nothing":           {none, device.ErrInvalidRange},
		"create an odd size":        {oddMem, device.ErrInvalidRange},
		"create a negative size":    {negative, device.ErrInvalidRange},
		"map part of a handle":      {d.MemMap(p, gran, a), device.ErrInvalidRange},
		"map over a mapping":        {d.MemMap(p+gran, 2*gran, a), device.ErrInvalidRange},
		"map unaligned":             {d.MemMap(p+512, gran, b), device.ErrInvalidRange},
		"map outside":               {d.MemMap(p+8*gran, gran, b), device.ErrInvalidRange},
		"map past the end":          {d.MemMap(p+7*gran, 2*gran, a), device.ErrInvalidRange},
		"map a released handle":     {d.MemMap(p, gran, released), device.ErrInvalidHandle},
		"map no handle":             {d.MemMap(p, gran, 0), device.ErrInvalidHandle},
		"release twice":             {d.MemRelease(released), device.ErrInvalidHandle},
		"access where nothing is":   {d.MemSetAccess(p, gran), device.ErrInvalidRange},
		"access half a mapping":     {d.MemSetAccess(p+2*gran, gran), device.ErrInvalidRange},
		"access past a mapping":     {d.MemSetAccess(p+2*gran, 3*gran), device.ErrInvalidRange},
		"unmap where nothing is":    {d.MemUnmap(p, gran), device.ErrInvalidRange},
		"unmap half a mapping":      {d.MemUnmap(p+3*gran, gran), device.ErrInvalidRange},
		"unmap nothing":             {d.MemUnmap(p, 0), device.ErrInvalidRange},
		"free a mapped reservation": {d.AddressFree(p, 8*gran), device.ErrInvalidRange},
		"free part of it":           {d.AddressFree(p, gran), device.ErrInvalidRange},
		"free with MemFree":         {d.MemFree(p), device.ErrInvalidRange},
		"use what is not mapped":    {d.Memset(p, 0, 1, 0), device.ErrInvalidRange},
		"use past a mapping":        {d.Memset(p+4*gran-1, 0, 2, 0), device.ErrInvalidRange},
	}
	for name, tt := range tests {
		require.ErrorIs(t, tt.err, tt.want, name)
	}
	require.NoError(t, d.MemMap(p+4*gran, gran, b))
	require.ErrorContains(t, d.Memset(p+2*gran, 0, 3*gran, 0), "mapped without access")
	require.NoError(t, d.MemSetAccess(p+2*gran, 3*gran))
	require.NoError(t, d.Memset(p+2*gran, 0, 3*gran, 0))
	require.NoError(t, d.SyncStream(0)) // MemUnmap does not wait for work
	require.NoError(t, d.MemUnmap(p+2*gran, 3*gran))
	require.NoError(t, d.AddressFree(p, 8*gran))
	require.ErrorIs(t, d.AddressFree(p, 8*gran), device.ErrInvalidRange)
}

// MemUnmap does not wait, as cuMemUnmap does not; work that still uses the
// range loses the device, not the program.
func TestVMMUnmapUnderWork(t *testing.T) {
	d := open(t, 64*mib)
	p := reserve(t, d, gran)
	mapAt(t, d, p, gran, create(t, d, gran))
	s := newStream(t, d)
	release := hold(t, d, s)
	require.NoError(t, d.Memset(p, 1, gran, s))
	require.NoError(t, d.MemUnmap(p, gran))
	release()
	finishes(t, "SyncStream", func() { require.ErrorIs(t, d.SyncStream(s), device.ErrDeviceLost) })
	require.ErrorContains(t, d.SyncStream(s), "illegal address")
	require.NoError(t, d.Close())
}

// Contents follow the handle wherever it is mapped, however often.
func TestVMMRandomMapsKeepContents(t *testing.T) {
	const slots, handles = 24, 8
	rnd := newRand(t)
	d := open(t, 64*mib)
	p := reserve(t, d, slots*gran)
	var hs [handles]uintptr
	var value [handles]byte
	at := [slots]int{} // handle index + 1 of each slot
	for i := range hs {
		hs[i] = create(t, d, gran)
	}
	for range 2000 {
		slot := rnd.IntN(slots)
		addr := p + device.Ptr(slot)*gran
		if i := at[slot] - 1; i < 0 {
			i = rnd.IntN(handles)
			mapAt(t, d, addr, gran, hs[i])
			at[slot] = i + 1
		} else if rnd.IntN(2) == 0 {
			require.NoError(t, d.SyncStream(0)) // MemUnmap does not wait for work
			require.NoError(t, d.MemUnmap(addr, gran))
			at[slot] = 0
		} else {
			require.Equal(t, value[i], read(t, d, addr+777, 1, 0)[0])
			value[i]++
			require.NoError(t, d.Memset(addr+777, value[i], 1, 0))
		}
	}
	for slot, i := range at {
		if i > 0 {
			require.Equal(t, value[i-1], read(t, d, p+device.Ptr(slot)*gran+777, 1, 0)[0])
		}
	}
}

// Close leaves neither mappings nor file descriptors behind.
func TestCloseLeavesNothing(t *testing.T) {
	count := func() (fds, maps int) {
		dir, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		m, err := os.ReadFile("/proc/self/maps")
		require.NoError(t, err)
		return len(dir), bytes.Count(m, []byte("cupool-hostdev"))
	}
	fds, maps := count()
	for range 10 {
		d := open(t, 1<<30)
		p := reserve(t, d, 100*gran)
		mapAt(t, d, p, gran, create(t, d, gran))
		mapAt(t, d, p+5*gran, gran, create(t, d, gran))
		alloc(t, d, 20*mib)
		require.NoError(t, d.Close())
	}
	fds2, maps2 := count()
	require.Equal(t, fds, fds2)
	require.Equal(t, maps, maps2)
}
