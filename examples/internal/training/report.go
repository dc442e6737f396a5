package training

import (
	"slices"
	"time"
)

// MedianMicros is the median of times, in microseconds.
func MedianMicros(times []time.Duration) float64 {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return float64(sorted[len(sorted)/2].Nanoseconds()) / 1e3
}

// MiB is a number of bytes in MiB.
func MiB(bytes int64) float64 { return float64(bytes) / (1 << 20) }
