//go:build !linux

package ipc

import (
	"context"
	"errors"
	"net"
	"os"
)

// supported says whether this system has what the package needs.
const supported = false

var errSystem = errors.New("no such calls on this system")

// The types below have what the Linux version has. Here none is made.
type conn struct{ *net.UnixConn }

func (c *conn) send([][]byte, []*os.File) error           { return errSystem }
func (c *conn) say([]byte) error                          { return errSystem }
func (c *conn) receive() (*body, *os.File, error)         { return nil, nil, errSystem }
func (c *conn) during(context.Context) (stop func() bool) { return func() bool { return true } }
func (c *conn) peer() (Peer, error)                       { return Peer{}, errSystem }

func closeFile(*os.File) error { return nil }

func lost(err error) error { return err }

type process struct{}

func watch(int) (*process, error)            { return nil, errSystem }
func (p *process) wait(<-chan struct{}) bool { return true }
func (p *process) close()                    {}
