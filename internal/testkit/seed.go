package testkit

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Seed returns the seed of the test's random choices: CUPOOL_SEED from the
// environment or a new one. The test's log has it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if v := os.Getenv("CUPOOL_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 0, 64)
		if err != nil {
			t.Fatalf("CUPOOL_SEED=%q: %v", v, err)
		}
		seed = n
	}
	t.Logf("CUPOOL_SEED=%d", seed)
	return seed
}

// Rand returns random numbers of the test's Seed.
func Rand(t testing.TB) *rand.Rand { return rand.New(rand.NewPCG(Seed(t), 0)) }
