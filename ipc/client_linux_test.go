package ipc_test

import (
	"errors"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	sharing "github.com/cupool/cupool/device"
	"github.com/cupool/cupool/ipc"
)

// slowImport is a device whose first import waits.
type slowImport struct {
	cupool.Driver
	sharing.RangeSharing
	first             sync.Once
	importing, finish chan struct{}
}

func (d *slowImport) ImportRange(r sharing.SharedRange) (sharing.Ptr, error) {
	d.first.Do(func() {
		close(d.importing)
		<-d.finish
	})
	return d.RangeSharing.ImportRange(r)
}

// TestCloseWhileMapping: Close closes what another goroutine is just mapping, too.
func TestCloseWhileMapping(t *testing.T) {
	g := newRig(t, ipc.Config{})
	d := &slowImport{importing: make(chan struct{}), finish: make(chan struct{})}
	g.other = newPool(t, func() (cupool.Driver, error) {
		host, err := openHost()
		d.Driver, d.RangeSharing = host, host.(sharing.RangeSharing)
		return d, err
	})
	g.share("x", 5*mib)
	c := g.connect()
	type result struct {
		m   *ipc.Memory
		err error
	}
	opened, closed := make(chan result), make(chan error)
	go func() { m, err := c.Open(t.Context(), "x"); opened <- result{m, err} }()
	<-d.importing
	go func() { closed <- c.Close(t.Context()) }()
	require.Eventually(t, func() bool { // until Close is at work
		m, err := c.Open(t.Context(), "x")
		if err == nil {
			err = m.Close(t.Context())
		}
		return errors.Is(err, cupool.ErrClosed)
	}, waitTime, 1e6)
	close(d.finish)
	r := <-opened
	require.NoError(t, r.err)
	require.NoError(t, <-closed)
	require.ErrorIs(t, r.m.Close(t.Context()), cupool.ErrClosed)
	require.Eventually(t, func() bool { return len(g.server.Uses()) == 0 }, waitTime, 1e6)
	require.NoError(t, g.server.Close(t.Context()))
}

// TestCloseWhileOpening: Close does not wait for an exporter whose stream is busy, and
// the exporter knows that what it opens then is not mapped.
func TestCloseWhileOpening(t *testing.T) {
	g := newRig(t, ipc.Config{})
	release := make(chan struct{})
	require.NoError(t, g.pool.DefaultStream().Launch(func() { <-release }))
	g.share("x", 5*mib)
	c := g.connect()
	opened := make(chan error)
	go func() { _, err := c.Open(t.Context(), "x"); opened <- err }()
	require.Eventually(t, func() bool { return len(g.server.Uses()) == 1 }, waitTime, 1e6)
	require.NoError(t, c.Close(t.Context()))
	require.ErrorIs(t, <-opened, cupool.ErrClosed)
	require.Len(t, g.server.Uses(), 1, "until the stream is there")
	close(release)
	require.Eventually(t, func() bool { return len(g.server.Uses()) == 0 }, waitTime, 1e6)
	require.NoError(t, g.server.Close(t.Context()))
}

// TestCloseUnanswered: what a process closed before it closed the connection is closed,
// though nobody reads the answers.
func TestCloseUnanswered(t *testing.T) {
	g := newRig(t, ipc.Config{})
	release := make(chan struct{})
	g.share("x", 5*mib)
	c := g.dial()
	_, err := c.Write(hello(1, os.Getpid()))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 24)) // welcome
	require.NoError(t, err)
	require.NoError(t, g.pool.DefaultStream().Launch(func() { <-release }))
	g.share("late", 5*mib)
	open := func(request byte, name string) []byte {
		return append([]byte{3, 0, 0, 0, byte(8 + len(name)), 0, 0, 0, request, 0, 0, 0, 0, 0, 0, 0}, name...)
	}
	b := append(open(1, "x"), open(2, "late")...)
	b = append(append(b, frame(6, 0, 3, 1)...), frame(6, 0, 4, 2)...)
	_, err = c.Write(b)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(g.server.Uses()) == 2 }, waitTime, 1e6)
	require.NoError(t, c.Close())
	close(release)
	require.Eventually(t, func() bool { return len(g.server.Uses()) == 0 }, waitTime, 1e6)
	require.NoError(t, g.server.Close(t.Context()))
}
