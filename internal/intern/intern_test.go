package intern

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

func TestStacks(t *testing.T) {
	var s Stacks[string]
	long := []string{"a", "b", "c"}
	for _, c := range []struct {
		stack []string
		want  int
	}{
		{long, 0}, {long[:2], 1}, {nil, 2}, {slices.Clone(long), 0}, {[]string{}, 2}, {long[1:], 3}, {[]string{"b", "a"}, 4}, {long, 0}, {[]string{"a", "b"}, 1},
	} {
		require.Equal(t, c.want, s.Number(c.stack), "%q", c.stack)
	}
}

// A stack that is there again costs nothing, however deep it is.
func TestSamePlace(t *testing.T) {
	var s Stacks[int]
	deep := make([]int, 1<<20)
	require.Zero(t, s.Number(deep))
	testkit.RequireAllocates(t, 1<<10, 0, 0, func() {
		for range 1000 {
			require.Zero(t, s.Number(deep))
		}
	})
}
