package cupool_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

var errEnough = errors.New("enough")

// A wait that is cancelled ends with the cause, and the stream's work goes on.
func TestSyncContext(t *testing.T) {
	c, err := cupool.New(cupool.Config{})
	require.NoError(t, err)
	s, err := c.NewStream()
	require.NoError(t, err)
	gate := make(chan struct{})
	require.NoError(t, s.Launch(func() { <-gate }))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errEnough)
	require.ErrorIs(t, s.SyncContext(ctx), errEnough)
	close(gate)
	require.NoError(t, s.SyncContext(t.Context()))
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.SyncContext(t.Context()), cupool.ErrClosed)
	require.NoError(t, c.Close())
}

// A request that waits for memory of a busy stream can be cancelled, and later
// requests are served.
func TestAllocContext(t *testing.T) {
	c, err := cupool.New(cupool.Config{Limit: 64 * mib})
	require.NoError(t, err)
	s, err := c.NewStream()
	require.NoError(t, err)
	b, err := c.AllocContext(t.Context(), 60*mib, nil)
	require.NoError(t, err)
	gate := make(chan struct{})
	require.NoError(t, s.Launch(func() { <-gate }))
	require.NoError(t, c.FreeOn(b, s))
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error)
	go func() {
		_, err := c.AllocContext(ctx, 50*mib, nil)
		failed <- err
	}()
	cancel(errEnough)
	require.ErrorIs(t, <-failed, errEnough)
	close(gate)
	b, err = c.AllocContext(t.Context(), 50*mib, nil)
	require.NoError(t, err)
	require.NoError(t, c.Free(b))
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}
