package model

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// TestCarelessPrograms runs new programs each time whose streams are not recorded on the
// blocks that they read. In the device's order no memory goes to another stream, or back
// to the device, before they have. In the owner's order some does.
func TestCarelessPrograms(t *testing.T) {
	rng := testkit.Rand(t)
	early := 0
	for i := range testkit.Rounds(400) {
		data := Random(rng)
		switch {
		case i%2 == 0:
			data = takesTurns(rng)
		case i%8 == 5:
			data = runsBehind(rng)
		}
		together := []int{0, 0, 2, 3}[i%4]                 // 0: as the bytes say
		wait := []time.Duration{0, time.Nanosecond}[i/4%2] // which has memory of streams at work move
		res := Run(data, Options{Careless: true, Order: cupool.DeviceOrder, GrowWait: wait, Together: together})
		require.Empty(t, res.Errs, "program %d: %q\n%s", i, data, res.Log)
		for _, err := range Run(data, Options{Careless: true}).Errs {
			if strings.HasPrefix(err.Error(), "early reuse") {
				early++
				break
			}
		}
	}
	t.Logf("in the owner's order %d programs had memory reused too early", early)
	require.NotZero(t, early)
}

// takesTurns returns a program of few streams that want the same memory, and read each
// other's blocks.
func takesTurns(rng *rand.Rand) []byte {
	n := func(n int) int { return rng.IntN(n) }
	steps := []any{"new stream", "new stream", "new stream"}
	for range 30 + n(60) {
		switch n(16) {
		case 0, 1, 2, 3, 4:
			steps = append(steps, "alloc", root, n(14), 9+n(7), n(12)) // 2 to 24 MiB
		case 5, 6, 7:
			steps = append(steps, "read", n(256), n(14), 1)
		case 8, 9, 10, 11:
			steps = append(steps, "free", n(256), 0)
		case 12, 13:
			steps = append(steps, "complete", n(14), n(7))
		case 14:
			steps = append(steps, "trim", root, n(256), n(256))
		default:
			steps = append(steps, []any{"close a stream", "new stream", "empty the cache", "sleep or wake"}[n(4)])
		}
	}
	const capacity, limits = 1, 6 // 64 MiB with a soft limit of 16
	return assemble(string([]byte{byte(n(4)), capacity, byte(limits + n(2)), 0, 0}), steps...)
}
