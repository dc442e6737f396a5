//go:build gpu

package gorgoniavm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProgramsOnGPU: a GPU gives programs the tape machine's numbers, as far as
// float32 goes.
func TestProgramsOnGPU(t *testing.T) {
	for name, run := range programs {
		t.Run(name, func(t *testing.T) {
			gpuRig(t) // or skips
			e, _ := newGPUMeter(t)
			require.InDeltaSlice(t, run(t, nil, withTape), run(t, e, withVM), 1e-4)
		})
	}
}
