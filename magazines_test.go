package cupool_test

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// A magazine that is emptied again and again for a block of a size that it
// holds is that of another goroutine: it stays, and the stream grows.
func TestCrowd(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) { // no time passes
		c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{})})
		require.NoError(t, err)
		const size = 64 << 10
		lie := func() { // in a magazine
			for range 3 {
				b, err := c.Alloc(size, nil)
				require.NoError(t, err)
				require.NoError(t, c.Free(b))
			}
		}
		for i := range 16 {
			lie()
			require.True(t, c.FlushOwn(size), "time %d", i+1)
		}
		lie()
		require.False(t, c.FlushOwn(size))
		require.NotZero(t, c.HomedBytes())
		require.True(t, c.FlushOwn(2*size), "another size")
		lie()
		time.Sleep(11 * time.Millisecond)
		require.True(t, c.FlushOwn(size), "once in a while")
		require.NoError(t, c.Check())
		require.NoError(t, c.Close())
	})
}

// A hit takes no lock: it goes through while another goroutine has all of them.
func TestHitTakesNoLock(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	s, err := c.NewStream()
	require.NoError(t, err)
	pairs := func() error {
		for _, on := range []*cupool.Stream{nil, c.DefaultStream(), s} {
			for range 20 {
				b, err := c.Alloc(512, on)
				if err = errors.Join(err, c.Free(b)); err != nil {
					return err
				}
				b, err = c.AllocContext(t.Context(), 512, on)
				if err = errors.Join(err, c.FreePtr(b.Ptr(), 512)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for range 2 { // the second stream's first miss empties the magazines of the first
		require.NoError(t, pairs())
	}
	unlock := c.LockEverything()
	defer unlock()
	done := make(chan error, 1)
	go func() { done <- pairs() }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Error("it waits for a lock")
	}
}
