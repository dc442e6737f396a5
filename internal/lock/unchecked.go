//go:build !invariants

package lock

// Invariants says whether this build checks the order of locks, and the allocator's other rules
// after every change of its books (-tags invariants).
const Invariants = false

// place is where a lock stands in the order.
type place struct{}

// Init sets the lock's rank, and its number within the rank.
func (*place) Init(Rank, uint64) {}

func (*place) wait(mode) {}
func (*place) try(mode)  {}
func (*place) took(mode) {}
func (*place) gave(mode) {}
