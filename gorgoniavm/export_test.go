package gorgoniavm

// FusedLayers returns how many steps of a VM are layers, forward and back, that
// it computes in one step each.
func FusedLayers(m *VM) (forward, back int) {
	for i := range m.prog.instrs {
		switch in := &m.prog.instrs[i]; {
		case in.parts != nil:
			back++
		case in.fused && len(in.in) == 3:
			forward++
		}
	}
	return forward, back
}
