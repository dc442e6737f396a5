// Package lock has the allocator's locks and the order in which they are taken.
//
// In builds with -tags invariants each lock knows its Rank, and a goroutine that takes
// locks out of order panics, as Go's own runtime does with its lock ranks. In other builds
// a lock is that of package sync, at no cost.
package lock

import "fmt"

// A Rank is the place of a lock in the order in which a goroutine takes them: it waits for a
// lock only if that comes after all locks that it holds. Locks of one rank come in the order of
// the number that Init gives them; a goroutine holds one of several with the same number.
//
// TryLock, which waits for nobody, takes a lock in any order. While such a lock is held it
// counts as others do.
type Rank int

// The ranks, first to last.
const (
	Closing     Rank = iota - 9 // a device's: a stream, a pool or the allocator is closed
	Reclaim                     // a pool's, by its number: memory is taken away from heaps
	Device                      // a device's: the lists of streams and pools
	Lending                     // a pool's, by its number: memory moves between heaps
	HeapTable                   // a pool's, by its number: the lists of heaps
	Heap                        // a heap's, by its pool's number and its own
	StreamCalls                 // a stream's: its handle is used, or destroyed
	Clock                       // a stream's: its events are recorded and queried
	Segments                    // a pool's: the index of its segments

	// Leaf is the rank of a lock without another one: nothing is waited for while it is held.
	Leaf
)

var names = map[Rank]string{
	Closing: "Closing", Reclaim: "Reclaim", Device: "Device", Lending: "Lending", HeapTable: "HeapTable", Heap: "Heap",
	StreamCalls: "StreamCalls", Clock: "Clock", Segments: "Segments", Leaf: "Leaf",
}

// String returns the name of the rank.
func (r Rank) String() string {
	if name, ok := names[r]; ok {
		return name
	}
	return fmt.Sprintf("Rank(%d)", int(r))
}
