// Package leaks has the counts by which tests find what a device keeps for a program
// that has given everything back.
package leaks

// Held is what a device holds for its program. A device tells it with a method
// Held() Held.
type Held struct {
	Streams, Events int   // the default stream does not count
	Ranges          int   // of addresses: allocations and reservations
	RangeBytes      int64 // in them, with memory behind or not
}
