// Package gorgoniavm runs Gorgonia's graphs with their memory in the pool of a
// cupool.Engine.
//
// # The machine
//
// A VM stands where gorgonia.NewTapeMachine stood:
//
//	vm, err := gorgoniavm.New(g, eng, gorgoniavm.BindDualValues(weights...))
//	err = vm.RunAll()
//
// It computes what the tape machine computes, to the bit on the CPU, with the
// same operations. Every value, destination and gradient is a block of the
// pool. A block has as many holders as there are values in it (views, reshaped
// tensors and shallow clones lie in another value's block), and goes back with
// the last. Elementwise operations overwrite an operand that nobody reads any
// more. So at any time only what is still needed is live, which is less than
// the registers of the tape machine.
//
// RunAll runs the nodes in the tape machine's order, but for operations among
// scalars, which come last unless tensors depend on them. Where BindDualValues
// names nodes, gradients of others that nothing reads are not computed at all.
// Gradients are added, variables of gorgonia.Set assigned and values bound to
// their nodes when everything else is done: a run that fails does none of it.
//
// # What is valid when
//
//   - An input's value is the program's; the VM does not write to it, but for
//     gorgonia.Set. Tensors in Go's heap will do, and so will tensors in the
//     pool, and rows of them. Other views are copied by every RunAll.
//   - n.Grad() of inputs lasts: with BindDualValues it is the same tensor for
//     every run, which the solver zeroes; without, it is as any other value.
//   - The values of the graph's roots, of scalars, of nodes given to Keep, and
//     with TraceValues of all nodes, last until the next RunAll. Others are
//     nil, or stale ones of another machine.
//   - What gorgonia.Read has read is in Go's heap and lasts.
//   - Close leaves values and gradients in Go's heap, by copying them.
//
// A tensor whose block has gone back is a freed one: its use is an error. Where
// RunAll is called inside a Scope of the engine, the values of nodes end with
// that; gradients do not.
//
// # On a GPU
//
// On an engine over memory that the CPU cannot touch, the engine's kernels
// compute: elementwise operations, comparisons, products, sums and maxima,
// SoftMax, Repeat, slices, Concat, transpositions, ByIndices, sigmoid. Others
// gorgonia computes by itself, on copies in host memory: convolutions (by way
// of im2col), pooling, normalizations, dropout, random numbers, sparsemax and
// all operations of a program's own. That is right, and slow; VM.Fallbacks
// counts it. In managed memory (cupool.CUDAManaged) the CPU computes all of the
// graph, without copies.
//
// Dense layers, products of matrices with a bias and Rectify, and their
// gradients are computed in one step each, where nobody reads, keeps, traces,
// watches or logs what lies between (Engine.Linear, Engine.LinearBack). So is a
// sum of y ⊙ LogSoftMax(z) over all rows with its gradient by z
// (Engine.ScaledCrossEntropy); a y of 0 makes 0 there, whatever the logarithm.
//
// To start operations one by one takes most of the time of a small graph. With
// Replay a run is recorded as a CUDA graph, which later runs launch.
//
// Scalars are Go values on every device. RunAll waits for those that the device
// computes, the cost most often, but not for what comes after them, such as the
// gradients: it returns before the device is done; Engine.Sync waits. Inputs in
// Go's heap are copied to the device by every RunAll, and stay where they are.
// The values of nodes whose gradients are bound move to the device, as solvers
// work on them there, until Close.
//
// # Limits
//
// An operation of a program's own must not write to its operands. Operations
// of gorgonia are known by the names that they have in v0.9.18. The graph is
// sorted by New; nodes that are added later are not run.
package gorgoniavm
