package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/kernels"
)

func TestFusedStep(t *testing.T) {
	for name, op := range map[string]int{
		"Add": kernels.Add, "Pow": kernels.Pow, "Gte": kernels.FusedCompare + kernels.Gte, "ElNe": kernels.FusedCompare + kernels.Ne,
		"Tanh": kernels.FusedFunction + kernels.Tanh, "Sigmoid": kernels.FusedFunction + kernels.Sigmoid, "Copy": kernels.FusedFunction + kernels.Same,
	} {
		require.EqualValues(t, op+3<<8+70<<16, FusedStep(name, 3, 70), name)
	}
	require.Less(t, kernels.FusedInputs+kernels.FusedScalars+kernels.FusedSteps, 256, "registers have eight bits")
}
