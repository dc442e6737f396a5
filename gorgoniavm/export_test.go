package gorgoniavm

import "github.com/cupool/cupool/gorgoniavm/internal/program"

// FusedLayers returns how many steps of a VM are layers, forward and back, that
// it computes in one step each.
func FusedLayers(m *VM) (forward, back int) {
	return countSteps(m, program.Linear), countSteps(m, program.LinearBack)
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
