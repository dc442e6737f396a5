package magazine

import _ "unsafe" // for go:linkname

//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// procID returns the processor (P) that the goroutine runs on now. It is a
// hint that spreads goroutines over shards: nothing breaks when it is old
// by the time it is used.
func procID() int {
	id := procPin()
	procUnpin()
	return id
}
