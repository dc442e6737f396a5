package conformance

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/cupool/cupool/internal/atomic"
	"github.com/cupool/cupool/internal/testlevel"
)

// chooser is where a random program gets its choices from.
type chooser = *rand.Rand

// seed returns the seed of the test's random programs: CUPOOL_SEED or a new
// one, which is logged.
func seed(t *testing.T) uint64 {
	s := rand.Uint64()
	if v := os.Getenv("CUPOOL_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 0, 64)
		if err != nil {
			t.Fatalf("CUPOOL_SEED=%q: %v", v, err)
		}
		s = n
	}
	t.Logf("CUPOOL_SEED=%d", s)
	return s
}

// choices returns the i-th generator of a seed.
func choices(seed uint64, i int) chooser {
	return rand.New(rand.NewPCG(seed, uint64(i)))
}

// scaled returns how often to do what the long form of a plain build does n
// times.
func scaled(n int) int {
	n = testlevel.Rounds(n)
	if testlevel.Race {
		n /= 5
	}
	if atomic.Invariants {
		n /= 5
	}
	return max(n, 4)
}
