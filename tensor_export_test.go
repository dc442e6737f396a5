package cupool

// Computes reports whether the engine's device computes.
func Computes(e *Engine) bool { return e.ops.GPU() != nil }

// ScopeLen returns the number of blocks that a scope notes.
func ScopeLen(s *Scope) int {
	s.e.scopeMu.Lock()
	defer s.e.scopeMu.Unlock()
	return s.blocks.Len()
}
