package conformance

import (
	"math/rand/v2"

	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/testkit"
)

// chooser is where a random program gets its choices from.
type chooser = *rand.Rand

// choices returns the i-th generator of a seed.
func choices(seed uint64, i int) chooser {
	return rand.New(rand.NewPCG(seed, uint64(i)))
}

// scaled returns how often to do what the long form of a plain build does n
// times.
func scaled(n int) int {
	n = testkit.Rounds(n)
	if testkit.Race {
		n /= 5
	}
	if lock.Invariants {
		n /= 5
	}
	return max(n, 4)
}
