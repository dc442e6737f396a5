package adaptor

import (
	"fmt"
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/nilptr"
)

// SizePool is an allocator for requests of a range of sizes.
type SizePool struct {
	// Max is the largest request in bytes, 0 for no bound.
	Max int64
	// Allocator serves the requests that are larger than the Max of the pool
	// before.
	Allocator cupool.Allocator
}

// BySize chooses among several allocators by the size of a request. Its pools for
// small, medium and large blocks each have segments of their own sizes and a
// Strategy of their own.
type BySize struct {
	several
	max []int64
}

// NewBySize returns an allocator over pools in ascending order of Max. The last
// pool has no Max. All are of the same device. Private pools of one allocator
// (cupool.Pool.NewPool) serve best, as they share its streams and its limit.
// NewBySize fails with a *cupool.ConfigError.
func NewBySize(pools ...SizePool) (*BySize, error) {
	s := &BySize{}
	for i, p := range pools {
		last := i == len(pools)-1
		switch {
		case nilptr.Is(p.Allocator):
			return nil, &cupool.ConfigError{Field: fmt.Sprintf("pools[%d].Allocator", i), Value: nil, Reason: "is missing"}
		case last && p.Max != 0:
			return nil, &cupool.ConfigError{Field: fmt.Sprintf("pools[%d].Max", i), Value: p.Max, Reason: "must be 0 for the last pool, which takes what is left"}
		case !last && (p.Max <= 0 || i > 0 && p.Max <= pools[i-1].Max):
			return nil, &cupool.ConfigError{Field: fmt.Sprintf("pools[%d].Max", i), Value: p.Max, Reason: "must be positive and larger than that of the pool before"}
		}
		s.all = append(s.all, p.Allocator)
		if !last {
			s.max = append(s.max, p.Max)
		}
	}
	if len(pools) == 0 {
		return nil, &cupool.ConfigError{Field: "pools", Value: pools, Reason: "must be at least one"}
	}
	return s, nil
}

// Alloc implements cupool.Allocator.
func (s *BySize) Alloc(size int64, on *cupool.Stream) (cupool.Block, error) {
	i, _ := slices.BinarySearch(s.max, size)
	return s.alloc(i, size, on)
}
