package adaptor_test

import (
	"io"
	"log/slog"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/adaptor"
	"github.com/cupool/cupool/internal/conformance"
)

// What of the battery concerns an Allocator's methods; the rest is of the
// Caching behind.
var (
	// independent tests look at nothing but these methods.
	independent = []string{
		"sizes_no_device_has", "zero_size", "alignment", "contents_survive_neighbours", "random_in_goroutines", "producers_and_consumers",
		"pipeline_across_streams", "stale_handle", "wrong_pointers", "use_after_free", "double_free_in_goroutines", "own_stream_is_ordered",
	}
	// transparent tests look at the books of the one Caching behind, too.
	transparent = append(slices.Clone(independent),
		"sizes", "random_on_streams", "double_free", "another_allocators_things", "early_free", "free_waits_for_all_streams")
	// whenFull are for those that have nothing to fall back on.
	whenFull = append(slices.Clone(transparent),
		"out_of_memory", "out_of_memory_then_retry", "callback", "pending_under_pressure")
)

func TestConformance(t *testing.T) {
	for _, tc := range []struct {
		name    string
		tests   []string
		through func(*cupool.Caching) (cupool.Allocator, error)
	}{
		{"one behind the other", whenFull, oneBehindTheOther},
		{"fallback", transparent, func(c *cupool.Caching) (cupool.Allocator, error) {
			spare, err := c.NewPool(cupool.PoolConfig{Name: "spare"})
			return adaptor.NewFallback(c, spare), err
		}},
		{"by size", independent, func(c *cupool.Caching) (cupool.Allocator, error) { return bySize(c) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			open := func(t *testing.T) cupool.Driver {
				d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 8 << 30})
				require.NoError(t, err)
				return d
			}
			conformance.Run(t, open, cupool.Config{}, conformance.Options{Through: tc.through, Only: tc.tests})
		})
	}
}

// oneBehindTheOther puts all adaptors of one allocator together.
func oneBehindTheOther(c *cupool.Caching) (cupool.Allocator, error) {
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
func bySize(c *cupool.Caching) (*adaptor.BySize, error) {
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
