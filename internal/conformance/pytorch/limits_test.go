package pytorch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// The parts "OOM/limits" and "Streams" of the checklist in core_test.go.

// TestPyTorchOutOfMemory: the message says what is the matter, the counter
// counts, and what runs afterwards is not affected.
func TestPyTorchOutOfMemory(t *testing.T) {
	backings(t, 256<<20, func(t *testing.T, c *cupool.Pool) {
		buf, err := cupool.BufferFrom(c, []int64{1, 2, 3}, nil)
		require.NoError(t, err)
		for i, size := range []int64{1 << 30, 1 << 40, 1 << 60} {
			_, err := c.Alloc(size, nil)
			require.ErrorIs(t, err, cupool.ErrOutOfMemory)
			for _, want := range []string{"out of memory", "GiB requested", "256 MiB", "live", "the request is larger than the device"} {
				require.Contains(t, strings.ReplaceAll(strings.ReplaceAll(err.Error(), "TiB", "GiB"), "EiB", "GiB"), want)
			}
			require.EqualValues(t, i+1, c.Stats().OOMs)
		}
		got, err := buf.ToHost()
		require.NoError(t, err)
		require.Equal(t, []int64{1, 2, 3}, got)
		require.NoError(t, buf.Free())
	})
}

// TestPyTorchRaisesOOM fills the device with blocks of mixed sizes that are
// then cached, so that every way of giving memory back is used.
func TestPyTorchRaisesOOM(t *testing.T) {
	for name, change := range map[string]func(*cupool.Config){
		"plain":     func(*cupool.Config) {},
		"threshold": func(cfg *cupool.Config) { cfg.GarbageCollectionThreshold = 0.5 },
		"max_split": func(cfg *cupool.Config) {
			if cfg.Backing == cupool.BackingSegments {
				cfg.MaxSplit = 32 << 20
			}
		},
	} {
		t.Run(name, func(t *testing.T) { raisesOOM(t, change) })
	}
}

func raisesOOM(t *testing.T, change func(*cupool.Config)) {
	const total = int64(512 << 20)
	backings(t, total, func(t *testing.T, c *cupool.Pool) {
		for range 3 {
			var blocks []cupool.Block
			for i := 0; ; i++ {
				b, err := c.Alloc([]int64{11 << 20, 512, 3 << 20, 100_000, 64 << 20}[i%5], nil)
				if err != nil {
					require.ErrorIs(t, err, cupool.ErrOutOfMemory)
					break
				}
				blocks = append(blocks, b)
			}
			for i, b := range blocks {
				if i%2 == 0 {
					require.NoError(t, c.Free(b))
				}
			}
			_, err := c.Alloc(total, nil)
			require.ErrorIs(t, err, cupool.ErrOutOfMemory)
			for i, b := range blocks {
				if i%2 == 1 {
					require.NoError(t, c.Free(b))
				}
			}
			b := pooltest.Alloc(t, c, total-2<<20, nil)
			require.NoError(t, c.Free(b))
		}
	}, change)
}

// TestPyTorchPerProcessMemoryFraction: 0.499 of the device fits, 0.5 and a
// byte does not, and the limit reads back.
func TestPyTorchPerProcessMemoryFraction(t *testing.T) {
	const total = int64(1 << 30)
	backings(t, total, func(t *testing.T, c *cupool.Pool) {
		require.Equal(t, total/2, c.Stats().Limit)
		b := pooltest.Alloc(t, c, total*499/1000, nil)
		require.NoError(t, c.Free(b))
		require.NoError(t, c.EmptyCache())
		_, err := c.Alloc(total/2+1, nil)
		var oom *cupool.OOMError
		require.ErrorAs(t, err, &oom)
		require.Equal(t, total/2, oom.Limit)
		require.Contains(t, err.Error(), "of a limit of 512 MiB")
		b = pooltest.Alloc(t, c, total/2, nil)
		require.NoError(t, c.Free(b))
	}, func(cfg *cupool.Config) { cfg.Fraction = 0.5 })
}

// TestPyTorchRecordStreamOnShiftedView: an address inside a block leads to
// the block.
func TestPyTorchRecordStreamOnShiftedView(t *testing.T) {
	backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		other, err := c.NewStream()
		require.NoError(t, err)
		x, err := cupool.NewBuffer[float32](c, 1_000, nil)
		require.NoError(t, err)
		view, err := x.View(500, 900)
		require.NoError(t, err)
		release := slow(t, other)
		b, err := c.Lookup(view.Ptr())
		require.NoError(t, err)
		require.Equal(t, x.Block(), b)
		require.NoError(t, c.RecordStream(b, other))
		require.NoError(t, x.Free())
		y, err := cupool.NewBuffer[float32](c, 1_000, nil)
		require.NoError(t, err)
		require.NotEqual(t, x.Ptr(), y.Ptr())
		release()
		require.NoError(t, other.Sync())
		require.NoError(t, y.Free())
	})
}
