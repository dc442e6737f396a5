package adaptor_test

import (
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/adaptor"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// The battery for any Allocator.
func TestConformanceAllocator(t *testing.T) {
	for name, over := range map[string]func(*cupool.Pool) (cupool.Allocator, error){
		"one behind the other": oneBehindTheOther,
		"by size":              func(c *cupool.Pool) (cupool.Allocator, error) { return bySize(c) },
		"fallback": func(c *cupool.Pool) (cupool.Allocator, error) {
			first := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
			limited, err := adaptor.NewLimiting(first, 2*mib)
			return adaptor.NewFallback(limited, c), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			conformance.RunAllocator(t, func(t *testing.T) cupool.Allocator {
				d := pooltest.OpenHost(t)
				c := pooltest.Open(t, cupool.Config{Driver: d})
				a, err := over(c)
				require.NoError(t, err)
				t.Cleanup(func() {
					require.NoError(t, c.Close())
					require.NoError(t, d.Close())
				})
				return a
			})
		})
	}
}

// oneBehindTheOther puts all adaptors of one allocator together.
func oneBehindTheOther(c *cupool.Pool) (cupool.Allocator, error) {
	limiting, err := adaptor.NewLimiting(c, 1<<60)
	if err != nil {
		return nil, err
	}
	never := func(adaptor.Failure) bool { return false }
	log := slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}))
	counted := adaptor.NewFailureCallback(adaptor.NewStatistics(limiting), never)
	return adaptor.NewLogging(adaptor.NewTracking(adaptor.NewRecording(counted, io.Discard)), log), nil
}

// bySize makes small, medium and large pools of an allocator.
func bySize(c *cupool.Pool) (*adaptor.BySize, error) {
	medium, err := c.NewPool(cupool.PoolConfig{Name: "medium"})
	if err != nil {
		return nil, err
	}
	large, err := c.NewPool(cupool.PoolConfig{Name: "large"})
	if err != nil {
		return nil, err
	}
	return adaptor.NewBySize(
		adaptor.SizePool{Max: 64 << 10, Allocator: c},
		adaptor.SizePool{Max: 1 << 20, Allocator: medium},
		adaptor.SizePool{Allocator: large},
	)
}
