package gorgoniavm

import "github.com/cupool/cupool/gorgoniavm/internal/program"

// FusedLayers returns how many steps of a VM are layers, forward and back, that
// it computes in one step each.
func FusedLayers(m *VM) (forward, back int) {
	return countSteps(m, program.Linear), countSteps(m, program.LinearBack)
}

// FusedConvs is FusedLayers for convolutions.
func FusedConvs(m *VM) (forward, back int) {
	return countSteps(m, program.ConvForward), countSteps(m, program.ConvBack)
}

// FusedNorms is FusedLayers for batch normalizations.
func FusedNorms(m *VM) (forward, back int) {
	return countSteps(m, program.NormForward), countSteps(m, program.NormBack)
}

// Rectified returns how many steps are Rectify, or its gradient, by itself.
func Rectified(m *VM) (forward, back int) {
	return countSteps(m, program.Rectify), countSteps(m, program.RectifyBack)
}

// FusedLosses returns how many losses of a VM are computed with their gradient.
func FusedLosses(m *VM) int { return countSteps(m, program.LossBack) }

func countSteps(m *VM, s program.Step) (n int) {
	for i := range m.prog.Instrs {
		if m.prog.Instrs[i].Step == s {
			n++
		}
	}
	return n
}

// Groups returns how many steps of a VM are several elementwise operations.
func Groups(m *VM) int { return countSteps(m, program.Elementwise) }
