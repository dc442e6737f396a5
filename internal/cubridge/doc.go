// Package cubridge makes the calls of CUDA that go through gorgonia.org/cu: device
// attributes, contexts, memory, and the making of streams and events. Every one
// returns a CUresult. Those with a context make it current for the call and leave the
// thread as it was. All are safe from several goroutines. The module's root is the only
// other package that imports cu, for the conversions of handles that this one offers.
//
// The calls that the allocator makes all the time, and those that cu lacks, go
// through internal/cudadrv, which sets the context and makes the call in one
// cgo crossing. With cu that takes a locked thread and two crossings, or four
// when the context is not current. On a shared 2-core Xeon without a GPU, over
// the stand-in driver of internal/fakecuda, the best of 60 runs of
// BenchmarkCrossings: an event record takes 210 ns through cu and 150 ns
// without it (190 ns with the checks of RecordEvent). Asking 16 events takes
// 2.7 µs through cu and 1.4 µs in one crossing. cu.Ctx.Do hops to another
// thread, which costs 18 to 46 µs; it is used nowhere.
package cubridge
