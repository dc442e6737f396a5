//go:build invariants

package orders_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestRecordBesideFree: a block that is freed while a stream is being recorded on
// it, after it was found live, is an error, and leaves no lock behind.
func TestRecordBesideFree(t *testing.T) {
	for name, record := range map[string]func(c *cupool.Pool, b cupool.Block, s *cupool.Stream) error{
		"RecordStream": func(c *cupool.Pool, b cupool.Block, s *cupool.Stream) error { return c.RecordStream(b, s) },
		"FreeOn":       func(c *cupool.Pool, b cupool.Block, s *cupool.Stream) error { return c.FreeOn(b, s) },
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := pooltest.New(t, 1<<30, pooltest.WithMagazines)
			u := pooltest.NewStream(t, c)
			for range 10 { // the size gets a home
				require.NoError(t, c.Free(pooltest.Alloc(t, c, 4096, nil)))
			}
			b := pooltest.Alloc(t, c, 4096, nil)
			block.Hook = func(at block.Step) {
				if at == block.Leaving {
					block.Hook = nil
					require.NoError(t, c.Free(b))
				}
			}
			defer func() { block.Hook = nil }()
			err := record(c, b, u)
			require.Nil(t, block.Hook)
			require.ErrorIs(t, err, cupool.ErrUseAfterFree)
			done := pooltest.Start(func() error {
				_, err := c.Alloc(3<<20, nil) // takes the stream's lock
				return err
			})
			select {
			case err := <-done:
				require.NoError(t, err)
			case <-time.After(20 * time.Second):
				require.FailNow(t, "the stream is locked")
			}
			require.NoError(t, c.Check())
		})
	}
}
