//go:build !unix

package cupool

import (
	"fmt"
	"net"
)

var errNoSockets = fmt.Errorf("cupool: file descriptors cannot be sent on this system: %w", ErrNotSupported)

// Send fails with ErrNotSupported on this system.
func (n *Native) Send(*net.UnixConn) error { return errNoSockets }

// ReceiveNative fails with ErrNotSupported on this system.
func ReceiveNative(*Caching, *net.UnixConn) (*Native, error) { return nil, errNoSockets }
