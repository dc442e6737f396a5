package ipc

import (
	"net"
	"os"
)

// Receive returns the file that came with the next message, or nil.
func Receive(c *net.UnixConn) (*os.File, error) {
	_, f, err := (&conn{UnixConn: c}).receive()
	return f, err
}

// Say sends a message.
func Say(c *net.UnixConn, m []byte) error { return (&conn{UnixConn: c}).say(m) }
