package main

// A share says which part of a group's work a rank does. A rank without others is
// {0, 1}.
type share struct{ rank, size int }

// part returns the rank's part of [from, to). The parts of all ranks follow each
// other, and differ by one at most.
func (s share) part(from, to int) (first, last int) {
	n := to - from
	return from + s.rank*n/s.size, from + (s.rank+1)*n/s.size
}
