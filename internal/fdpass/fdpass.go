//go:build unix

// Package fdpass takes a file out of a message of a Unix socket.
package fdpass

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// ErrSeveral says that a message brought more than one file.
var ErrSeveral = errors.New("one at most is taken")

// Read reads bytes from a socket, and returns the file that came with them, under a
// name, or nil. Where several came, none can be meant: all are closed. It fails with
// syscall.EMFILE where the process has no descriptor left for the file.
func Read(c *net.UnixConn, data []byte, name string) (n int, f *os.File, err error) {
	rights := make([]byte, syscall.CmsgSpace(4))
	n, got, flags, _, err := c.ReadMsgUnix(data, rights)
	if err != nil {
		return n, nil, err
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:got])
	var files []*os.File
	for i := range messages {
		fds, _ := syscall.ParseUnixRights(&messages[i]) // other messages have none
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), name))
		}
	}
	if err == nil && len(files) == 0 && flags&syscall.MSG_CTRUNC != 0 { // the system gives those that it can
		err = fmt.Errorf("the file descriptor that a message brought was not taken: %w", syscall.EMFILE)
	}
	if err == nil && (len(files) > 1 || flags&syscall.MSG_CTRUNC != 0) {
		err = fmt.Errorf("the message brought %d file descriptors or more: %w", len(files), ErrSeveral)
	}
	if err == nil && len(files) == 1 {
		return n, files[0], nil
	}
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return n, nil, err
}
