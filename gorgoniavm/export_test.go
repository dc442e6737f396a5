package gorgoniavm

// FusedLayers returns how many steps of a VM are layers, forward and back, that
// it computes in one step each.
func FusedLayers(m *VM) (forward, back int) {
	for i := range m.prog.instrs {
		switch in := &m.prog.instrs[i]; {
		case len(in.parts) == 2:
			back++
		case in.fused && len(in.in) == 3 && in.parts == nil:
			forward++
		}
	}
	return forward, back
}

// FusedLosses returns how many losses of a VM are computed with their gradient.
func FusedLosses(m *VM) (n int) {
	for i := range m.prog.instrs {
		if m.prog.instrs[i].losses {
			n++
		}
	}
	return n
}
