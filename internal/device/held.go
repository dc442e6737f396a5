package device

// Held is what a device holds for its program, to be watched for leaks.
// Devices tell it with a method Held() Held.
type Held struct {
	Streams, Events int   // the default stream does not count
	Ranges          int   // of addresses: allocations and reservations
	RangeBytes      int64 // in them, with memory behind or not
}
