package ipc_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/ipc"
)

// crowd connects n times, says something over each connection, and holds all of them.
func crowd(t *testing.T, at net.Addr, n int, says []byte) (all []net.Conn) {
	t.Helper()
	for range n {
		c, err := net.Dial(at.Network(), at.String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, _ = c.Write(says) // it may have been ended
		all = append(all, c)
	}
	return all
}

// TestCrowd: an importer is served beside many connections that say nothing, a part of a
// hello, or nothing after it. As many are ended as there is no room for.
func TestCrowd(t *testing.T) {
	const room = 8
	whole := hello(1, os.Getpid())
	for name, test := range map[string]struct {
		says []byte
		n    int
	}{
		"nothing": {nil, room}, "a part of a header": {whole[:5], room}, "a part of a hello": {whole[:20], room}, "hello": {whole, ipc.MaxConns},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, ipc.Config{}, func(s *ipc.Server) { ipc.SetRoom(s, room) })
			g.share("x", 1000)
			first := g.connect()
			m, err := first.Open(t.Context(), "x")
			require.NoError(t, err)
			ended := make(chan error, test.n+room)
			for _, c := range crowd(t, g.listener.Addr(), test.n+room, test.says) {
				require.NoError(t, c.SetReadDeadline(time.Now().Add(waitTime)))
				go func() {
					_, err := io.Copy(io.Discard, c)
					if !errors.Is(err, os.ErrDeadlineExceeded) {
						err = nil // reset, or closed
					}
					ended <- err
				}()
			}
			n, err := g.connect().Open(t.Context(), "x")
			require.NoError(t, err)
			require.NoError(t, n.Close(t.Context()))
			for range room {
				require.NoError(t, <-ended)
			}
			require.NoError(t, first.Err(), "it has something open")
			require.NoError(t, m.Close(t.Context()))
		})
	}
}

// TestOldestConn: one connection too many ends the oldest over which nothing is open.
func TestOldestConn(t *testing.T) {
	g := newRig(t, ipc.Config{})
	g.share("x", 1000)
	var all [ipc.MaxConns]*ipc.Client
	for i := range all {
		all[i] = g.connect()
	}
	m, err := all[0].Open(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, g.connect().Err())
	<-all[1].Done()
	require.NoError(t, m.Close(t.Context()))
	for i, c := range all {
		if i != 1 {
			require.NoError(t, c.Err())
		}
	}
}

// TestOpenEnded: what is asked for over a connection that was just ended for another one is
// not held.
func TestOpenEnded(t *testing.T) {
	g := newRig(t, ipc.Config{})
	g.share("x", 1000)
	require.ErrorIs(t, ipc.OpenEnded(g.server, "x"), ipc.ErrGone)
	require.Empty(t, g.server.Uses())
}

// TestTooManyConns: a process that has memory open over all its connections gets no more
// of them, until it closes some.
func TestTooManyConns(t *testing.T) {
	g := newRig(t, ipc.Config{})
	g.share("x", 1000)
	var last *ipc.Memory
	for range ipc.MaxConns {
		var err error
		last, err = g.connect().Open(t.Context(), "x")
		require.NoError(t, err)
	}
	_, err := ipc.Connect(t.Context(), g.other, g.dial(), ipc.Config{})
	require.ErrorIs(t, err, ipc.ErrRefused)
	require.ErrorContains(t, err, fmt.Sprintf("process %d has 256 connections", os.Getpid()))
	require.NoError(t, last.Close(t.Context()))
	require.NoError(t, g.connect().Close(t.Context()))
}

// TestNoDescriptors: an exporter goes on that had no descriptors left, and serves beside
// connections that would take all.
func TestNoDescriptors(t *testing.T) {
	exporter := start(t, devices[0], devices[0].name)
	path := filepath.Join(t.TempDir(), "s")
	exporter.do("serve %s", path)
	exporter.do("share x 1000 1")
	exporter.do("files 20")
	crowd(t, &net.UnixAddr{Name: path, Net: "unix"}, 100, nil)
	pool := newPool(t, openHost)
	require.Eventually(t, func() bool {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return false
		}
		client, err := ipc.Connect(t.Context(), pool, c, ipc.Config{})
		if err != nil { // ended, as another one of the crowd came
			return false
		}
		m, err := client.Open(t.Context(), "x")
		if err != nil {
			return false
		}
		return m.Close(t.Context()) == nil && client.Close(t.Context()) == nil
	}, waitTime, 10*time.Millisecond)
	exporter.kill()
}
