//go:build unix

package native

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/cupool/cupool"
)

// Send exports the pool to the process at the other end of a Unix socket, which
// calls Receive. It fails as Export does, or with the socket's error.
func (n *Allocator) Send(conn *net.UnixConn) error {
	f, err := n.Export()
	if err != nil {
		return err
	}
	defer f.Close()
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
// with the socket's error.
func Receive(c *cupool.Pool, conn *net.UnixConn) (*Allocator, error) {
	var data [1]byte
	oob := make([]byte, syscall.CmsgSpace(4))
	_, got, _, _, err := conn.ReadMsgUnix(data[:], oob)
	if err != nil {
		return nil, fmt.Errorf("cupool: receiving a native pool: %w", err)
	}
	f, err := fileOf(oob[:got])
	if err != nil {
		return nil, fmt.Errorf("cupool: receiving a native pool: %w", err)
	}
	defer f.Close()
	return Import(c, f)
}

// fileOf returns the file that came with a message. Where several came, there is
// none that can be meant: all are closed.
func fileOf(oob []byte) (*os.File, error) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	var files []*os.File
	for i := range messages {
		fds, _ := syscall.ParseUnixRights(&messages[i]) // other messages have none
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "native pool"))
		}
	}
	if err == nil && len(files) == 1 {
		return files[0], nil
	}
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	if len(files) == 0 {
		return nil, errors.Join(errors.New("the message brought no file descriptor"), err)
	}
	return nil, errors.Join(fmt.Errorf("the message brought %d file descriptors, a pool is one", len(files)), err)
}
