//go:build !unix

package native

import (
	"fmt"
	"net"

	"github.com/cupool/cupool"
)

var errNoSockets = fmt.Errorf("cupool: file descriptors cannot be sent on this system: %w", cupool.ErrNotSupported)

// Send fails with ErrNotSupported on this system.
func (n *Allocator) Send(*net.UnixConn) error { return errNoSockets }

// Receive fails with ErrNotSupported on this system.
func Receive(*cupool.Pool, *net.UnixConn) (*Allocator, error) { return nil, errNoSockets }
