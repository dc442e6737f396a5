//go:build unix

package native_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/native"
)

// These tests share a pool with another process, which is this program again
// with a variable set and one end of a socket as its descriptor 3.

const nativeShareVar = "CUPOOL_TEST_NATIVE_SHARE"

// TestShare has one process allocate, write and send a pool with a block, and
// the other read and overwrite it.
func TestShare(t *testing.T) { each(t, share) }

func share(t *testing.T, open func(*testing.T) cupool.Driver) {
	if os.Getenv(nativeShareVar) != "" {
		receive(t, open(t))
		return
	}
	n, c := newNative(t, open(t), native.Config{Pool: &cuda.NativePoolConfig{Shareable: true}})
	const size = 3<<20 + 100
	b, err := n.Alloc(size, nil)
	require.NoError(t, err)
	_, err = n.ExportBlock(b)
	require.ErrorIs(t, err, cupool.ErrNotSupported, "before the pool")
	require.NoError(t, n.DefaultStream().Memset(b.Ptr(), 5, size))
	require.NoError(t, n.DefaultStream().Sync())

	conn, wait := peer(t)
	require.NoError(t, n.Send(conn))
	data, err := n.ExportBlock(b)
	require.NoError(t, err)
	_, err = conn.Write(binary.LittleEndian.AppendUint64(data[:], size))
	require.NoError(t, err)
	wait()
	requireBytes(t, n.DefaultStream(), b, 6)
	_, err = n.ImportBlock(data, size, nil)
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.NoError(t, n.Free(b))
	_, err = n.ExportBlock(b)
	require.ErrorIs(t, err, cupool.ErrUseAfterFree)

	whole, err := native.New(c, native.Config{})
	require.NoError(t, err)
	_, err = whole.Export()
	require.ErrorIs(t, err, cupool.ErrNotSupported, "the default pool")
	require.NoError(t, whole.Close())
}

func receive(t *testing.T, d cupool.Driver) {
	f := os.NewFile(3, "socket")
	fc, err := net.FileConn(f)
	require.NoError(t, err)
	conn := fc.(*net.UnixConn)
	c, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	n, err := native.Receive(c, conn)
	require.NoError(t, err)
	_, err = n.Alloc(1, nil)
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.ErrorContains(t, err, "belongs to another process")
	_, err = n.Export()
	require.ErrorIs(t, err, cupool.ErrNotSupported)

	var message [72]byte
	_, err = conn.Read(message[:])
	require.NoError(t, err)
	size := int64(binary.LittleEndian.Uint64(message[64:]))
	data := cuda.PoolPointer(message[:64])
	s, err := n.NewStream()
	require.NoError(t, err)
	_, err = n.ImportBlock(data, 0, s)
	require.ErrorIs(t, err, cupool.ErrInvalidSize)
	_, err = n.ImportBlock(cuda.PoolPointer{1}, size, s)
	require.ErrorContains(t, err, "importing a block")
	b, err := n.ImportBlock(data, size, s)
	require.NoError(t, err)
	got, err := n.Lookup(b.Ptr() + 77)
	require.NoError(t, err)
	require.Equal(t, b, got)
	requireBytes(t, s, b, 5)
	require.NoError(t, n.RecordStream(b, nil))
	require.NoError(t, s.Memset(b.Ptr(), 6, size))
	require.NoError(t, n.Free(b))
	require.ErrorIs(t, n.Free(b), cupool.ErrDoubleFree)
	require.NoError(t, n.Close())
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}

// peer starts the other process and returns a socket to it. wait waits until it
// ended, and fails unless its test passed.
func peer(t *testing.T) (conn *net.UnixConn, wait func()) {
	t.Helper()
	ends := socketEnds(t)
	theirs, err := ends[1].File()
	require.NoError(t, err)
	require.NoError(t, ends[1].Close())
	defer theirs.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	cmd.Env = append(os.Environ(), nativeShareVar+"=1")
	cmd.ExtraFiles = []*os.File{theirs}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	return ends[0], func() {
		t.Helper()
		err := cmd.Wait()
		require.NoError(t, err, out.String())
		require.Contains(t, out.String(), "--- PASS: "+t.Name())
	}
}

// TestReceiveErrors: a message without a descriptor, and none.
func TestReceiveErrors(t *testing.T) {
	n, c := newNative(t, pooltest.OpenHost(t), native.Config{})
	ends := socketEnds(t)
	require.ErrorIs(t, n.Send(ends[0]), cupool.ErrNotSupported)
	_, err := ends[0].Write([]byte("hello"))
	require.NoError(t, err)
	_, err = native.Receive(c, ends[1])
	require.ErrorContains(t, err, "no file descriptor")
	require.NoError(t, ends[1].Close())
	_, err = native.Receive(c, ends[1])
	require.ErrorIs(t, err, net.ErrClosed)
	require.NoError(t, ends[0].Close())
	shared, _ := newNative(t, pooltest.OpenHost(t), native.Config{Pool: &cuda.NativePoolConfig{Shareable: true}})
	require.ErrorIs(t, shared.Send(ends[0]), net.ErrClosed)
	_, err = native.Import(nil, nil)
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	_, err = native.Import(c, nil)
	require.ErrorIs(t, err, cupool.ErrInvalidHandle)
}

// socketEnds returns both ends of a Unix socket.
func socketEnds(t *testing.T) (ends [2]*net.UnixConn) {
	t.Helper()
	ends[0], ends[1] = socketPair()
	t.Cleanup(func() { _, _ = ends[0].Close(), ends[1].Close() })
	return ends
}

func socketPair() (a, b *net.UnixConn) {
	fds := testkit.Must(syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0))
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		ends[i] = testkit.Must(net.FileConn(f)).(*net.UnixConn)
		f.Close()
	}
	return ends[0], ends[1]
}

// openFiles returns how many descriptors this process has.
func openFiles(t *testing.T) int {
	list, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

// TestSendKeepsNothing: Send closes the descriptor that it sends.
func TestSendKeepsNothing(t *testing.T) {
	n, c := newNative(t, pooltest.OpenHost(t), native.Config{Pool: &cuda.NativePoolConfig{Shareable: true}})
	ends := socketEnds(t)
	_, err := native.Receive(c, nil)
	require.ErrorIs(t, err, cupool.ErrInvalidHandle)
	before := openFiles(t)
	require.NoError(t, n.Send(ends[0]))
	require.ErrorIs(t, n.Send(nil), cupool.ErrInvalidHandle)
	require.Equal(t, before, openFiles(t), "descriptors")
}

// TestReceiveFromStrangers: whatever comes over the socket, Receive returns an
// error and keeps no descriptor.
func TestReceiveFromStrangers(t *testing.T) {
	_, c := newNative(t, pooltest.OpenHost(t), native.Config{})
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	file, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer file.Close()
	a, p, f := int(r.Fd()), int(w.Fd()), int(file.Fd())
	for name, m := range map[string]struct {
		data []byte
		fds  []int
		want string
	}{
		"none":    {[]byte("hello"), nil, "no file descriptor"},
		"two":     {[]byte{0}, []int{a, p}, "brought 2 file descriptors or more: one at most is taken"},
		"three":   {[]byte{0}, []int{a, p, f}, "one at most is taken"},
		"many":    {[]byte{0}, slices.Repeat([]int{a}, 200), "one at most is taken"},
		"a pipe":  {[]byte{0}, []int{a}, "importing a native pool"},
		"a file":  {[]byte{0}, []int{f}, "importing a native pool"},
		"the end": {nil, nil, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			ends := socketEnds(t)
			before := openFiles(t)
			if m.data != nil {
				var oob []byte
				if m.fds != nil {
					oob = syscall.UnixRights(m.fds...)
				}
				_, _, err := ends[0].WriteMsgUnix(m.data, oob, nil)
				require.NoError(t, err)
			} else {
				require.NoError(t, ends[0].CloseWrite())
			}
			_, err := native.Receive(c, ends[1])
			require.ErrorContains(t, err, m.want)
			require.Equal(t, before, openFiles(t), "descriptors")
		})
	}
	ends := socketEnds(t)
	require.NoError(t, ends[1].SetReadDeadline(time.Now()))
	_, err = native.Receive(c, ends[1])
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// importing is a device that calls a function when it has imported a block.
type importing struct {
	cupool.Driver
	cuda.NativePools
	imported func()
}

func (d *importing) ImportNativePointer(p cuda.NativePool, data cuda.PoolPointer) (cupool.Ptr, error) {
	defer d.imported()
	return d.NativePools.ImportNativePointer(p, data)
}

// TestCloseWhileImporting: a block that comes as Close has run goes back.
func TestCloseWhileImporting(t *testing.T) {
	n, _ := newNative(t, pooltest.OpenHost(t), native.Config{Pool: &cuda.NativePoolConfig{Shareable: true}})
	b := testkit.Must(n.Alloc(5000, nil))
	f := testkit.Must(n.Export())
	defer f.Close()
	data := testkit.Must(n.ExportBlock(b))

	host := pooltest.OpenHost(t)
	_, c := newNative(t, &importing{host, host.(cuda.NativePools), nil}, native.Config{})
	theirs := testkit.Must(native.Import(c, f))
	c.Driver().(*importing).imported = func() { require.NoError(t, theirs.Close()) }
	_, err := theirs.ImportBlock(data, 5000, nil)
	require.ErrorIs(t, err, cupool.ErrClosed)
	require.ErrorContains(t, err, "import: closed")
	require.NoError(t, c.Sync())
	require.NoError(t, n.Free(b))
}

// TestImportLargerBlock: a block that is said to be larger than it is would reach
// behind the memory that was mapped.
func TestImportLargerBlock(t *testing.T) {
	n, _ := newNative(t, pooltest.OpenHost(t), native.Config{Pool: &cuda.NativePoolConfig{Shareable: true}})
	b, err := n.Alloc(5000, nil)
	require.NoError(t, err)
	f, err := n.Export()
	require.NoError(t, err)
	defer f.Close()
	data, err := n.ExportBlock(b)
	require.NoError(t, err)

	_, c := newNative(t, pooltest.OpenHost(t), native.Config{})
	theirs, err := native.Import(c, f)
	require.NoError(t, err)
	_, err = theirs.Alloc(1, nil)
	require.ErrorIs(t, err, cupool.ErrNotSupported, "the pool is another process's")
	_, err = theirs.ImportBlock(data, 1<<20, nil)
	require.ErrorIs(t, err, cupool.ErrInvalidSize)
	_, err = theirs.ImportBlock(data, 5000, n.DefaultStream())
	require.ErrorIs(t, err, cupool.ErrForeignStream)
	gone := testkit.Must(theirs.NewStream())
	require.NoError(t, gone.Close())
	_, err = theirs.ImportBlock(data, 5000, gone)
	require.ErrorIs(t, err, cupool.ErrClosed)
	h, err := theirs.ImportBlock(data, 5000, nil)
	require.NoError(t, err)
	all := c.Driver().(interface{ NativePointerSize(cupool.Ptr) int64 }).NativePointerSize(h.Ptr())
	require.NoError(t, theirs.Free(h))
	require.ErrorIs(t, testkit.Second(theirs.ImportBlock(data, all+1, nil)), cupool.ErrInvalidSize)
	require.NoError(t, theirs.Free(testkit.Must(theirs.ImportBlock(data, all, nil))))

	small, err := n.Alloc(1, nil)
	require.NoError(t, err)
	data, err = n.ExportBlock(small)
	require.NoError(t, err)
	h, err = theirs.ImportBlock(data, 1, nil)
	require.NoError(t, err)
	require.NoError(t, theirs.Free(h))
	require.NoError(t, n.Free(small))
	require.NoError(t, theirs.Close())
	require.NoError(t, n.Free(b))
}
