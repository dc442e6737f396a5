package model

import "slices"

// A Clock is a vector clock (Fidge and Mattern, 1988): element i is how many
// pieces of the work of stream i come before a point, in the order that the
// device keeps. A stream that it does not reach to counts 0.
type Clock []uint64

// At returns the element of a stream.
func (c Clock) At(stream int) uint64 {
	if stream < len(c) {
		return c[stream]
	}
	return 0
}

// Set makes the element of a stream n.
func (c *Clock) Set(stream int, n uint64) {
	for len(*c) <= stream {
		*c = append(*c, 0)
	}
	(*c)[stream] = n
}

// Join makes c come after o, too.
func (c *Clock) Join(o Clock) {
	for i, n := range o {
		c.Set(i, max(c.At(i), n))
	}
}

// Covers reports whether everything before o is before c, too.
func (c Clock) Covers(o Clock) bool {
	for i, n := range o {
		if c.At(i) < n {
			return false
		}
	}
	return true
}

// Clone returns a copy.
func (c Clock) Clone() Clock { return slices.Clone(c) }
