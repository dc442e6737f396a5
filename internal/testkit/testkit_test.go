package testkit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLevel(t *testing.T) {
	for value, long := range map[string]bool{"": false, "long": true, "quick": false} {
		t.Setenv("CUPOOL_TEST", value)
		long = long && !testing.Short()
		require.Equal(t, long, Long())
		for _, c := range []struct{ n, quick int }{{1000, 125}, {8, 1}, {3, 1}, {1, 1}} {
			want := c.quick
			if long {
				want = c.n
			}
			require.Equal(t, want, Rounds(c.n))
		}
	}
}
