package ipc_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/handletest"
	"github.com/cupool/cupool/ipc"
)

// TestHandlesOfNothing: handles that are nil, zero, closed or of another allocator are
// errors, everywhere.
func TestHandlesOfNothing(t *testing.T) {
	g := newRig(t, ipc.Config{})
	x := g.share("x", 1000)
	handletest.Arguments(t, func() any { return g.server })
	handletest.Arguments(t, func() any { return x })
	g = newRig(t, ipc.Config{}) // Force has ended the other
	g.share("x", 1000)
	client := g.connect()
	handletest.Arguments(t, func() any { return client })
	handletest.Arguments(t, func() any {
		m, err := client.Open(t.Context(), "x")
		require.NoError(t, err)
		return m
	})

	handletest.Receivers(t, (*ipc.Server)(nil), new(ipc.Server), (*ipc.Share)(nil), new(ipc.Share), (*ipc.Client)(nil), new(ipc.Client), (*ipc.Memory)(nil), new(ipc.Memory))
	for _, c := range []*ipc.Client{nil, new(ipc.Client)} {
		_, err := c.Open(t.Context(), "x")
		require.ErrorIs(t, err, cupool.ErrInvalidHandle)
	}

	closed := newClosedPool(t)
	for _, p := range []*cupool.Pool{nil, new(cupool.Pool)} {
		_, err := ipc.NewServer(p, ipc.Config{})
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
		_, err = ipc.Connect(t.Context(), p, g.dial(), ipc.Config{})
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	}
	_, err := ipc.Connect(t.Context(), g.other, nil, ipc.Config{})
	require.ErrorIs(t, err, cupool.ErrInvalidHandle)
	_, err = ipc.Connect(t.Context(), g.other, new(net.UnixConn), ipc.Config{})
	require.Error(t, err)
	require.Error(t, g.server.ServeConn(t.Context(), new(net.UnixConn)))
	_, err = ipc.Connect(context.Context(nil), g.other, g.dial(), ipc.Config{})
	require.ErrorIs(t, err, cupool.ErrInvalidHandle)

	b, err := g.pool.Alloc(1000, nil)
	require.NoError(t, err)
	ended, err := g.pool.NewStream()
	require.NoError(t, err)
	require.NoError(t, ended.Close())
	for want, on := range map[error]*cupool.Stream{cupool.ErrForeignStream: g.other.DefaultStream(), cupool.ErrClosed: ended} {
		_, err = g.server.Share("y", b, on)
		require.ErrorIs(t, err, want)
	}
	_, err = g.server.Share("y", b, new(cupool.Stream))
	require.ErrorIs(t, err, cupool.ErrForeignStream)
	foreign, err := g.other.Alloc(1000, nil)
	require.NoError(t, err)
	for _, b := range []cupool.Block{foreign, {}, cupool.NewMint().Block(1<<20, 512, 1, 1)} {
		_, err = g.server.Share("y", b, nil)
		require.Error(t, err)
	}
	require.NoError(t, g.other.Free(foreign))
	require.NoError(t, g.pool.Free(b))
	_, err = g.server.Share("y", b, nil)
	require.ErrorIs(t, err, cupool.ErrUseAfterFree)
	require.Zero(t, g.pool.Stats().PendingBytes-1024, "only x is held")

	server, err := ipc.NewServer(closed, ipc.Config{})
	require.NoError(t, err)
	_, err = server.Share("x", b, nil)
	require.Error(t, err)
	require.NoError(t, server.Close(t.Context()))
}

// newClosedPool returns a pool that is closed.
func newClosedPool(t *testing.T) *cupool.Pool {
	d, err := openHost()
	require.NoError(t, err)
	c, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	require.NoError(t, c.Close())
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return c
}
