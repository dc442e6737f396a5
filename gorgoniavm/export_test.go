package gorgoniavm

import "github.com/cupool/cupool/gorgoniavm/internal/program"

// Steps counts the steps of a VM by what computes them.
func Steps(m *VM) map[program.Step]int {
	n := make(map[program.Step]int)
	for i := range m.prog.Instrs {
		n[m.prog.Instrs[i].Step]++
	}
	return n
}
