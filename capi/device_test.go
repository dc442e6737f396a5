//go:build cgo

package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// newGPU returns a device over a driver that counts, and the handle of a stream.
func newGPU(t *testing.T) (*gpu, *pooltest.Driver, cupool.StreamHandle) {
	c, d := pooltest.New(t, 64<<20)
	h := cupool.StreamHandle(0)
	for h <= cuda.PerThreadStream { // these are no streams that were made
		var err error
		h, err = d.NewStream()
		require.NoError(t, err)
	}
	return &gpu{root: c, access: poolaccess.Of(c), pools: map[poolID]*pool{}}, d, h
}

// closedStream enters a closed stream, as a thread does that is late.
func closedStream(t *testing.T, g *gpu, h cupool.StreamHandle) *cupool.Stream {
	s, err := g.root.AdoptStream(h)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	g.streams.Store(h, s)
	return s
}

// TestRecordOnLateStream: a use of a stream's handle is not noted on a stream that is closed, as if it were over.
func TestRecordOnLateStream(t *testing.T) {
	g, d, h := newGPU(t)
	closed := closedStream(t, g, h)
	b := pooltest.Alloc(t, g.root, 4096, nil)
	require.NoError(t, g.onStream(h, func(s *cupool.Stream) error { return g.record(b, s) }))
	open, err := g.root.AdoptStream(h)
	require.NoError(t, err)
	require.NotSame(t, closed, open)
	d.Busy(open)
	require.NoError(t, g.root.Free(b))
	require.EqualValues(t, 4096, g.root.Stats().PendingBytes)
	d.Idle(open)
}

// TestForgetAll: no stream of a handle stays open that was forgotten, whatever is known of the handle.
func TestForgetAll(t *testing.T) {
	g, d, h := newGPU(t)
	open, err := g.root.AdoptStream(h)
	require.NoError(t, err)
	require.NoError(t, g.forget(h))
	require.True(t, open.Closed(), "it was never entered")

	late := closedStream(t, g, h)
	use := func(s *cupool.Stream) error { open = s; return s.Sync() }
	require.NoError(t, g.onStream(h, use))
	require.NotSame(t, late, open)
	g.streams.Store(h, late)
	require.NoError(t, g.forget(h))
	require.True(t, open.Closed(), "a closed one was entered")

	refused := errors.New("the device refuses")
	require.NoError(t, g.onStream(h, use))
	first := open
	d.Fail("SyncStream", refused)
	require.ErrorIs(t, g.forget(h), refused)
	d.Fail("SyncStream", nil)
	require.NoError(t, g.onStream(h, use))
	require.Same(t, first, open, "it is open still")
	require.NoError(t, g.forget(h))
	require.True(t, open.Closed())
	require.NoError(t, g.forget(0))
	require.False(t, g.root.DefaultStream().Closed())
}

// TestLimitBesideSettings: a limit stays that is set while other settings change.
func TestLimitBesideSettings(t *testing.T) {
	g, _, _ := newGPU(t)
	limited := make(chan error)
	go func() {
		defer close(limited)
		for i := range int64(2000) {
			limit := (i%7 + 1) << 20
			if err := g.bound(bound{bytes: limit}); err != nil {
				limited <- err
				return
			}
			g.mu.RLock()
			now := g.limit
			g.mu.RUnlock()
			if now != limit || g.root.Config().Limit != limit {
				limited <- fmt.Errorf("%d: the limit is %d and %d", limit, now, g.root.Config().Limit)
				return
			}
		}
	}()
	for i := 0; ; i++ {
		select {
		case err := <-limited:
			require.NoError(t, err)
			return
		default:
			require.NoError(t, g.configure(fmt.Sprintf("divisions:%d", 4<<(i%2))))
		}
	}
}

// TestBounds: settings change the settings' bound, the program its own, and the smaller one holds.
func TestBounds(t *testing.T) {
	g, _, _ := newGPU(t)
	for _, step := range []struct {
		change func() error
		limit  int64
	}{
		{func() error { return g.bound(bound{bytes: 8 << 20}) }, 8 << 20},
		{func() error { return g.configure("divisions:4") }, 8 << 20},
		{func() error { return g.configure("limit:50M") }, 8 << 20},
		{func() error { return g.bound(bound{bytes: 10 << 20}) }, 10 << 20},
		{func() error { return g.configure("limit:9M, divisions:1") }, 9 << 20},
		{func() error { return g.bound(bound{}) }, 9 << 20},
		{func() error { return g.configure("limit:0") }, 0},
	} {
		require.NoError(t, step.change())
		require.Equal(t, step.limit, g.limit)
		require.Equal(t, step.limit, g.root.Config().Limit)
	}
	require.Error(t, g.bound(bound{bytes: -1}))
}

// TestCapturedBeside: a stream that is captured hides nothing that fails beside it.
func TestCapturedBeside(t *testing.T) {
	captured := fmt.Errorf("emptying: %w", &cupool.WaitError{Err: errCaptured})
	require.NoError(t, unlessCaptured(errors.Join(captured, captured)))
	require.ErrorIs(t, unlessCaptured(errors.Join(captured, errors.Join(cupool.ErrDeviceLost, captured))), cupool.ErrDeviceLost)
	require.EqualValues(t, codeOf(cupool.ErrDeviceLost), codeOf(errors.Join(cupool.ErrAsleep, cupool.ErrDeviceLost)))
}

// TestReleasedBeside: an allocation from a pool that is released meanwhile finds none, also while the device's own sleeps.
func TestReleasedBeside(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{})})
	g := &gpu{root: c}
	p, err := c.NewPool(cupool.PoolConfig{})
	require.NoError(t, err)
	require.NoError(t, p.Close())
	_, late := p.Alloc(1000, nil)
	require.ErrorIs(t, late, cupool.ErrClosed)
	missing := g.missing(poolID{1, 1}).Error()
	require.EqualError(t, g.unlessReleased(poolID{1, 1}, late), missing)
	require.NoError(t, c.Sleep(nil))
	require.EqualError(t, g.unlessReleased(poolID{1, 1}, late), missing)
	require.Equal(t, late, g.unlessReleased(poolID{}, late))
	require.NoError(t, c.Wake())
}
