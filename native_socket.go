//go:build unix

package cupool

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// Send exports the pool to the process at the other end of a Unix socket, which
// calls ReceiveNative. It fails as Export does, or with the socket's error.
func (n *Native) Send(conn *net.UnixConn) error {
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

// ReceiveNative imports the pool that the process at the other end of a Unix
// socket sends. It fails as ImportNative does, or with the socket's error.
func ReceiveNative(c *Caching, conn *net.UnixConn) (*Native, error) {
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
	return ImportNative(c, f)
}

// fileOf returns the file that came with a message.
func fileOf(oob []byte) (*os.File, error) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		if fds, err := syscall.ParseUnixRights(&messages[i]); err == nil && len(fds) == 1 {
			syscall.CloseOnExec(fds[0])
			return os.NewFile(uintptr(fds[0]), "native pool"), nil
		}
	}
	return nil, errors.New("the message brought no file descriptor")
}
