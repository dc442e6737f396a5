// Package cubridge makes the calls of CUDA that go through gorgonia.org/cu: device
// attributes, contexts, memory, and the making of streams and events. Every one
// returns a CUresult. Those with a context make it current for the call and leave the
// thread as it was. All are safe from several goroutines. The module's root is the only
// other package that imports cu, for the conversions of handles that this one offers.
//
// The calls that the allocator makes all the time, and those that cu lacks, go
// through internal/cudadrv, which sets the context and makes the call in one
// cgo crossing. With cu that takes a locked thread and two crossings, or four
// when the context is not current. cu.Ctx.Do hops to another thread; it is used
// nowhere.
package cubridge
