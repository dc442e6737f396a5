package cupool

// T is a test's.
func T() {}
