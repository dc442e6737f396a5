package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Numbers that move around a mean are flat, from the second quarter on; one
// that goes on growing is not. Too few samples say nothing.
func TestGrown(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	run := func(n int, grow func(i int, s *sample)) []sample {
		samples := make([]sample, n)
		for i := range samples {
			s := &samples[i]
			s.RSS = 500<<20 + r.Int64N(200<<20)
			s.Reserved = min(s.RSS, int64(i)<<24)
			s.Goroutines, s.Files, s.Events = 90+r.Int64N(20), 12, 60
			s.Metadata = min(40<<20, int64(i)<<20)
			if grow != nil {
				grow(i, s)
			}
		}
		return samples
	}
	require.Empty(t, grown(run(400, nil)))
	for name, grow := range map[string]func(i int, s *sample){
		"the device's events":   func(i int, s *sample) { s.Events += int64(i) },
		"goroutines":            func(i int, s *sample) { s.Goroutines += int64(i) / 8 },
		"RSS":                   func(i int, s *sample) { s.RSS += int64(i) << 20 },
		"open files":            func(i int, s *sample) { s.Files += int64(i) / 32 },
		"the allocators' books": func(i int, s *sample) { s.Metadata += int64(i) << 16 },
	} {
		what := grown(run(400, grow))
		require.Len(t, what, 1, name)
		require.Contains(t, what[0], name+" grew")
	}
	require.Empty(t, grown(run(enoughSamples-1, func(i int, s *sample) { s.RSS += int64(i) << 30 })))
}
