package conformance

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/cupool/cupool/internal/invariant"
)

// chooser is where a random program gets its choices from: a generator, or
// the bytes of a fuzzer.
type chooser interface {
	// IntN returns a number in [0, n).
	IntN(n int) int
	// More reports whether there are choices left.
	More() bool
}

type generator struct{ *rand.Rand }

func (generator) More() bool { return true }

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
	return generator{rand.New(rand.NewPCG(seed, uint64(i)))}
}

// fuzzBytes makes choices of a fuzzer's data.
type fuzzBytes struct{ data []byte }

func (f *fuzzBytes) More() bool { return len(f.data) > 0 }

func (f *fuzzBytes) IntN(n int) int {
	v := 0
	for m := n - 1; m > 0; m >>= 8 {
		v <<= 8
		if len(f.data) > 0 {
			v |= int(f.data[0])
			f.data = f.data[1:]
		}
	}
	return v % n
}

// scaled returns how often to do what is worth n times in a plain build.
func scaled(n int) int {
	if raceEnabled {
		n /= 5
	}
	if invariant.Enabled {
		n /= 5
	}
	if testing.Short() {
		n /= 10
	}
	return max(n, 4)
}
