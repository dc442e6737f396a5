//go:build !linux

package testkit

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// FreeAddress returns an address of this computer for a program to listen at. Another
// program may take it first: nothing holds it here.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
