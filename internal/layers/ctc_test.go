package layers

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// A sample that claims more targets than there are is NaN, whatever the number.
func TestCTCTooManyTargets(t *testing.T) {
	for _, n := range []int{2, math.MaxInt / 2, math.MaxInt} {
		c := CTC[float64]{LogProbs: make([]float64, 12), Frames: 2, Samples: 2, Classes: 3, Targets: []int{1, 2}, Lengths: []int{2, 2}, TargetLengths: []int{1, n}}
		require.True(t, math.IsNaN(CTCLoss(c, false)), n)
		dx := make([]float64, 12)
		CTCLossBack(c, dx, 1)
		for i, v := range dx {
			require.Equal(t, i/3%2 == 1, math.IsNaN(v), "%d, element %d", n, i)
		}
	}
}
