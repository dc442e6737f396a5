//go:build invariants

package orders_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestRecordBesideFree: a block that is freed while a stream is being recorded on
// it, after it was found live, is an error, and leaves no lock behind.
func TestRecordBesideFree(t *testing.T) {
	for name, record := range map[string]func(*cupool.Pool, cupool.Block, *cupool.Stream) error{
		"RecordStream": (*cupool.Pool).RecordStream, "FreeOn": (*cupool.Pool).FreeOn,
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
			require.NoError(t, c.Check(), "no lock is left behind")
		})
	}
}
