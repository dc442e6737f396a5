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
// It computes the same values as the tape machine, to the bit on the CPU, with
// the same operations, but for what StdEng gets wrong (docs/gorgonia.md). Every value, destination and gradient is a block of the
// pool. A block has as many holders as there are values in it (views, reshaped
// tensors and shallow clones lie in another value's block), and goes back with
// the last. Elementwise operations overwrite an operand that has no later
// reader. So at any time only values that are still needed are live, which is
// less memory than the registers of the tape machine take.
//
// RunAll runs the nodes in the tape machine's order, but for operations among
// scalars, which come last unless tensors depend on them. Where BindDualValues
// names nodes, gradients of other nodes are computed only if something reads
// them.
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
//   - A value that the program gave to an input, as in
//     gorgonia.Let(w, updated.Value()) or VM.Set, lasts until the input has
//     another.
//   - Values that gorgonia.Read has read are in Go's heap and last.
//   - Close leaves values and gradients in Go's heap, by copying them.
//
// A tensor whose block has gone back is a freed one: its use is an error. A value
// that lies in the memory of an input, as a reshape of it does, is as valid as that
// memory, which is the program's. Where RunAll is called inside a Scope of the
// engine, the values of nodes end with that; gradients do not.
//
// # On a GPU
//
// On an engine over memory that the CPU cannot touch, the engine's kernels
// compute: elementwise operations, comparisons, products, sums and maxima,
// SoftMax, Sparsemax, functions of one number, Repeat, slices, Concat,
// transpositions, Tensordot, ByIndices, At, DiagFlat, conversions, convolutions,
// pooling, Upsample2D, batch norm, group norm, CTCLoss, the boxes of YOLOv3, dropout
// and random numbers (WithSeed). Gorgonia computes all others by itself, on copies
// in host memory: YOLOv3 with targets and all operations of a program's own. The
// results are right, but it is slow; VM.Fallbacks counts it, and a logger is told
// once for each operation (WithLogger). In managed memory (cuda.Managed) the CPU
// computes all of the graph, without copies.
//
// What a GPU computes is what gorgonia computes, rounding aside, with these
// exceptions. The gradient of dropout is gorgonia's, which divides by the probability
// to drop, but elements that are 0 count as kept where they are. CTCLoss has
// a gradient of 0 behind a sample's length, where gorgonia has −Inf, and its loss of
// a sample without targets has the right sign. Lengths, classes and indices that are
// out of range are no error, as the VM does not wait to look: results are NaN.
//
// Dense layers, products of matrices with a bias and Rectify, and their
// gradients are computed in one step each (nn.Linear, nn.LinearBack), if
// the values between are not read, kept, traced, watched or logged. So are
// convolutions (nn.Conv2d) and batch normalizations (nn.BatchNorm), with scale, bias
// and Rectify, and Rectify itself (nn.Activate), with their gradients. So is a sum
// of y ⊙ LogSoftMax(z) over all rows with its gradient by z
// (nn.ScaledCrossEntropy); a y of 0 makes 0 there, whatever the logarithm.
//
// Elementwise operations of one size that come one after the other are one
// launch, which keeps what lies between in registers: a step of an LSTM takes
// one beside its product, forward and back. They read slices where they lie, and
// write the parts of a concatenation, and of the gradient of what was sliced,
// where they belong. The gradients by a matrix that many steps use are one
// product if the steps' operands lie one after the other. A program that changes
// a slice between runs (gorgonia.UnsafeLet) does without from then on.
//
// To start operations one by one takes most of the time of a small graph. With
// Replay a run is recorded as a CUDA graph, which later runs launch.
//
// Scalars are Go values on every device. RunAll waits for the scalars that the
// device computes, the cost most often. It does not wait for operations after
// them, such as the gradients; Engine.Sync does. Inputs in Go's heap are copied
// to the device by every RunAll, and stay where they are. The values of nodes
// whose gradients are bound move to the device, as solvers work on them there,
// until Close.
//
// The running statistics of a batch norm are on the device from RunAll on, and
// the operation's own are NaN until SyncStats or Close. Two results are not
// Gorgonia's, which errs: group norm of groups of 264 elements and more, and the
// gradient of a batch norm in EvalMode. What Gorgonia has for the gradient of
// AveragePool2D, which is none, is the same on a device. Where no element of a window
// is above the lowest finite number, that is the maximum and has no gradient;
// Gorgonia panics for want of one.
//
// A Solver works there with the engine's kernels. One of Gorgonia's own works in
// Go's heap, which takes copies: the first operation of tensor that changes a
// gradient, or computes with it, moves the gradient there, and the next RunAll
// moves it back. The weights have to be in the pool for it, by BindDualValues
// or ToPool: with weights in Go's heap Gorgonia's Adam, AdaGrad and RMSProp fail with
// cupool.ErrNotSupported.
//
// # Limits
//
// Gorgonia takes two slices of a node for the same one if they begin and end at
// numbers that differ by multiples of 256 alone: columns 0 to 256 and 256 to 512
// are the former twice, and so are their gradients, with every machine. The parts
// of a concatenation count, as their gradients are slices. An axis for the parts,
// as in gorgonia.Slice(z, nil, gorgonia.S(k)) of batch × gates × units, avoids it.
//
// An operation of a program's own must not write to its operands. Operations
// of gorgonia are known by the names that they have in v0.9.18. The graph is
// sorted by New; nodes that are added later are not run.
package gorgoniavm
