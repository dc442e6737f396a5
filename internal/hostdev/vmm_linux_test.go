package hostdev_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
	"golang.org/x/sys/unix"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/testkit/drivertest"
)

const gran = 2 * mib

// What is released and mapped nowhere goes back to the system, and a new handle is zero.
func TestVMMGivesPagesBack(t *testing.T) {
	d := open(t, 1<<30)
	for range 2 {
		p := mapped(t, d, 8*gran)
		require.Equal(t, []byte{0}, read(t, d, p, 1, 0))
		require.LessOrEqual(t, backed(t), int64(gran), "one page, or a huge one")
		require.NoError(t, d.Memset(p, 1, 8*gran, 0))
		require.NoError(t, d.SyncStream(0))
		require.EqualValues(t, 8*gran, backed(t))
		require.NoError(t, d.MemUnmap(p, 8*gran)) // the handle was released
		require.Zero(t, backed(t))
	}
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

// MemUnmap does not wait, as cuMemUnmap does not; work that still uses the
// range loses the device, not the program.
func TestVMMUnmapUnderWork(t *testing.T) {
	d := open(t, 64*mib)
	p := mapped(t, d, gran)
	s := newStream(t, d)
	release := hold(t, d, s)
	require.NoError(t, d.Memset(p, 1, gran, s))
	require.NoError(t, d.MemUnmap(p, gran))
	release()
	testkit.Finishes(t, "SyncStream", func() { require.ErrorIs(t, d.SyncStream(s), device.ErrDeviceLost) })
	require.ErrorContains(t, d.SyncStream(s), "illegal address")
	require.NoError(t, d.Close())
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
		drivertest.Calls(t, d) // leaves something of everything
		mapped(t, d, 5*gran)
		alloc(t, d, 20*mib)
		require.NoError(t, d.Close())
	}
	fds2, maps2 := count()
	require.Equal(t, fds, fds2)
	require.Equal(t, maps, maps2)
}
