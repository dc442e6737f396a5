//go:build linux

package fdpass_test

import (
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/fdpass"
)

// ends returns the two ends of a connection.
func ends(t *testing.T) (a, b *net.UnixConn) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
	require.NoError(t, err)
	defer l.Close()
	a, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	require.NoError(t, err)
	b, err = l.AcceptUnix()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// TestRead: one file is returned, more are refused, and one that there is no descriptor
// for is said to be that.
func TestRead(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	fd := int(null.Fd())
	for name, c := range map[string]struct {
		fds  []int
		full bool // the process has no descriptor left
		want error
	}{
		"none": {}, "one": {fds: []int{fd}}, "two": {fds: []int{fd, fd}, want: fdpass.ErrSeveral}, "many": {fds: []int{fd, fd, fd, fd}, want: fdpass.ErrSeveral},
		"none, and no descriptor": {full: true}, "one, and no descriptor": {fds: []int{fd}, full: true, want: syscall.EMFILE},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := ends(t)
			var rights []byte
			if c.fds != nil {
				rights = syscall.UnixRights(c.fds...)
			}
			_, _, err := a.WriteMsgUnix([]byte{7}, rights, nil)
			require.NoError(t, err)
			if c.full {
				defer limit(t)()
			}
			var data [1]byte
			n, f, err := fdpass.Read(b, data[:], "name")
			require.ErrorIs(t, err, c.want)
			require.Equal(t, 1, n)
			require.Equal(t, byte(7), data[0])
			require.Equal(t, len(c.fds) == 1 && !c.full, f != nil)
			if f != nil {
				require.NoError(t, f.Close())
			}
		})
	}
}

// limit lets the process have no more descriptors, until back is called.
func limit(t *testing.T) (back func()) {
	free, err := syscall.Dup(0)
	require.NoError(t, err)
	require.NoError(t, syscall.Close(free))
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(free), Max: was.Max}))
	return func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)) }
}
