//go:build unix

package cupool_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// These tests share a pool with another process, which is this program again
// with a variable set and one end of a socket as its descriptor 3.

const nativeShareVar = "CUPOOL_TEST_NATIVE_SHARE"

func TestNativeShare(t *testing.T) { shareNative(t, openHost) }

// shareNative has one process allocate, write and send a pool with a block, and
// the other read and overwrite it.
func shareNative(t *testing.T, open func(*testing.T) cupool.Driver) {
	if os.Getenv(nativeShareVar) != "" {
		receiveNative(t, open(t))
		return
	}
	n, c := newNative(t, open(t), cupool.NativeConfig{Pool: &cupool.NativePoolConfig{Shareable: true}})
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

	whole, err := cupool.NewNative(c, cupool.NativeConfig{})
	require.NoError(t, err)
	_, err = whole.Export()
	require.ErrorIs(t, err, cupool.ErrNotSupported, "the default pool")
	require.NoError(t, whole.Close())
}

func receiveNative(t *testing.T, d cupool.Driver) {
	f := os.NewFile(3, "socket")
	fc, err := net.FileConn(f)
	require.NoError(t, err)
	conn := fc.(*net.UnixConn)
	c, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	n, err := cupool.ReceiveNative(c, conn)
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
	data := cupool.PoolPointer(message[:64])
	s, err := n.NewStream()
	require.NoError(t, err)
	_, err = n.ImportBlock(data, 0, s)
	require.ErrorIs(t, err, cupool.ErrInvalidSize)
	_, err = n.ImportBlock(cupool.PoolPointer{1}, size, s)
	require.Error(t, err)
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

func requireBytes(t *testing.T, s *cupool.Stream, b cupool.Block, want byte) {
	t.Helper()
	got := make([]byte, b.Size())
	require.NoError(t, s.CopyOut(got, b.Ptr()))
	for i, v := range got {
		if v != want {
			t.Fatalf("byte %d is %d, want %d", i, v, want)
		}
	}
}

// peer starts the other process and returns a socket to it. wait waits until it
// ended, and fails unless its test passed.
func peer(t *testing.T) (conn *net.UnixConn, wait func()) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	fc, err := net.FileConn(ours)
	require.NoError(t, err)
	t.Cleanup(func() { fc.Close() })
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), nativeShareVar+"=1")
	cmd.ExtraFiles = []*os.File{theirs}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	return fc.(*net.UnixConn), func() {
		t.Helper()
		err := cmd.Wait()
		require.NoError(t, err, out.String())
		require.Contains(t, out.String(), "--- PASS: "+t.Name())
	}
}

// TestReceiveNativeErrors: a message without a descriptor, and none.
func TestReceiveNativeErrors(t *testing.T) {
	n, c := newNative(t, openHost(t), cupool.NativeConfig{})
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		fc, err := net.FileConn(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		ends[i] = fc.(*net.UnixConn)
	}
	require.ErrorIs(t, n.Send(ends[0]), cupool.ErrNotSupported)
	_, err = ends[0].Write([]byte("hello"))
	require.NoError(t, err)
	_, err = cupool.ReceiveNative(c, ends[1])
	require.ErrorContains(t, err, "no file descriptor")
	require.NoError(t, ends[1].Close())
	_, err = cupool.ReceiveNative(c, ends[1])
	require.ErrorIs(t, err, net.ErrClosed)
	require.NoError(t, ends[0].Close())
}
