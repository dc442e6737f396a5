package testkit

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The address is held, and yet one may listen there, more than once.
func TestFreeAddress(t *testing.T) {
	at := FreeAddress(t)
	held, err := net.ResolveTCPAddr("tcp", at)
	require.NoError(t, err)
	for range 2 {
		_, err = (&net.Dialer{LocalAddr: held}).Dial("tcp", FreeAddress(t))
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		l, err := net.Listen("tcp", at)
		require.NoError(t, err)
		c, err := net.Dial("tcp", at)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.NoError(t, l.Close())
	}
}
