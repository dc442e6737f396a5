// Package cudadrv is the module's own binding of CUDA's driver interface: the
// calls that gorgonia.org/cu does not have, and those on the allocator's hot
// paths. It holds no policy and no state but the table of entry points.
// Everything is built with the tag gpu only.
//
// Contexts: every function takes the context that it is for, and its C part
// sets that context, makes the call and restores the thread's previous
// context in one cgo crossing. A goroutine cannot change threads inside a
// crossing, so callers need not lock their thread. A thread without a context
// keeps ours, which makes the next call there cheaper by two driver calls.
//
// Entry points: what gorgonia.org/cu links is linked here too. All others are
// looked up when the program starts (entries.h); one that the driver lacks
// makes its function return Missing, and Needs says which driver has it.
//
// Files: scope.h sets contexts; entries.h and entries.c are the table of
// entry points looked up; hot.c, vmm.c, pool.c, host.c, peer.c, stream.c and module.c
// hold the calls by subject, each with its Go side in the .go file of the
// same name. All Go-side handles and addresses are uintptr: none points into
// Go's heap, and C keeps no Go pointer after a call.
package cudadrv
