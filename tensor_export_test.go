package cupool

// ScopeLen returns the number of blocks that a scope notes.
func ScopeLen(s *Scope) int {
	s.e.scopeMu.Lock()
	defer s.e.scopeMu.Unlock()
	return len(s.blocks)
}
