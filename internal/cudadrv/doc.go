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
// With the tag cu, for programs that use gorgonia.org/cu themselves, cu.go stands in
// place of device.go: devices, contexts, allocations, modules, access to peers, and what
// makes and destroys streams and events go through that package. What is done for every
// operation (hot.go, launches) stays here, as one crossing does it, and so does what cu
// lacks, or has for older drivers alone: page-locked and virtual memory, the driver's
// pools, prefetches, captures, handles for other processes.
//
// All handles and addresses are uintptr: none points into Go's heap, and the driver
// keeps no Go pointer after a call. All functions are safe from several goroutines.
package cudadrv
