package testkit

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// FreeAddress returns an address of this computer for a program to listen at, also again and
// again. A socket holds it until the test ends, so that the system gives the port to
// nobody who leaves the choice to it.
func FreeAddress(t testing.TB) string {
	t.Helper()
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(s) })
	require.NoError(t, syscall.SetsockoptInt(s, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)) // as net.Listen does: both may have it
	require.NoError(t, syscall.Bind(s, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := syscall.Getsockname(s)
	require.NoError(t, err)
	return fmt.Sprint("127.0.0.1:", at.(*syscall.SockaddrInet4).Port)
}
