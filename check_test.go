package cupool_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// Every rule, broken on purpose: Check reports its number.
func TestCheck(t *testing.T) {
	for rule, ways := range cupool.Corruptions {
		for name, corrupt := range ways {
			t.Run(rule+"/"+name, func(t *testing.T) {
				c, d := pooltest.New(t, 1<<30)
				x := pooltest.NewScript(t, c, d).Run("a=2M b=3M free:a")
				require.Equal(t, "0 large: [Free 2M][Live 3M][Free 15M]", x.Layout())
				require.NoError(t, c.Check())
				corrupt(c)
				require.ErrorContains(t, c.Check(), rule)
			})
		}
	}
}
