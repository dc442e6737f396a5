//go:build unix

package native

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/fdpass"
)

var errNoSocket = fmt.Errorf("cupool: passing a native pool: the socket is nil: %w", cupool.ErrInvalidHandle)

// Send exports the pool to the process at the other end of a Unix socket, which
// calls Receive. It fails as Export does, or with the socket's error; for a nil one
// that is cupool.ErrInvalidHandle.
func (n *Allocator) Send(conn *net.UnixConn) error {
	f, err := n.Export()
	if err != nil {
		return err
	}
	defer f.Close()
	if conn == nil {
		return errNoSocket
	}
	_, _, err = conn.WriteMsgUnix([]byte{0}, syscall.UnixRights(int(f.Fd())), nil)
	if err != nil {
		return fmt.Errorf("cupool: sending a native pool: %w", err)
	}
	return nil
}

// Receive imports the pool that the process at the other end of a Unix
// socket sends. It waits for as long as the socket's deadline says, which is for
// ever where none is set (SetReadDeadline). It reads one byte and takes one file
// descriptor; others that come with it are closed. It fails as Import does, or
// with the socket's error; for a nil one that is cupool.ErrInvalidHandle.
func Receive(c *cupool.Pool, conn *net.UnixConn) (*Allocator, error) {
	if conn == nil {
		return nil, errNoSocket
	}
	var data [1]byte
	_, f, err := fdpass.Read(conn, data[:], "native pool")
	if err == nil && f == nil {
		err = errors.New("the message brought no file descriptor")
	}
	if err != nil {
		return nil, fmt.Errorf("cupool: receiving a native pool: %w", err)
	}
	defer f.Close()
	return Import(c, f)
}
