// Package cudadrv is the module's own binding of CUDA's driver interface. It holds no
// policy and no state but the table of entry points. The driver's library is opened
// by Init, at run time: programs are built without CUDA, and without cgo.
//
// Contexts: every function takes the context that it is for, and in one crossing
// (internal/clib) it sets that context, makes the call and restores the thread's
// previous context. A goroutine cannot change threads inside a crossing, so callers
// need not lock their thread. A thread without a context keeps ours, which makes the
// next call there cheaper by two driver calls.
//
// Entry points: all are looked up by Init (entries.go), as of the CUDA version in
// which the signature used here came. One that the driver lacks makes its function
// return Missing, and Needs says which driver has it.
//
// With the tag cu, the calls of devices, contexts and memory, and those that make
// streams and events, are made by gorgonia.org/cu (cu.go in place of device.go), for
// programs that use that package themselves.
//
// All handles and addresses are uintptr: none points into Go's heap, and the driver
// keeps no Go pointer after a call. All functions are safe from several goroutines.
package cudadrv
