package kernels

// CTCArgs are those of CTC, which has a block for a sample.
type CTCArgs struct {
	X, Targets, Lengths, TargetLengths uint64  // X: frames × samples × classes; the others int64
	Alpha, Beta, Losses, DX            uint64  // Alpha, Beta: work space; Losses: one a sample; DX 0: not wanted
	Scale                              float64 // of DX
	Frames, Samples, Classes           int64
	Count, Width                       int64 // of targets: all, and a row's; Width 0: they lie one after the other
}

// CTCTotalArgs are those of CTCTotal, which has one thread: the sum of losses or,
// with Mean, the mean of losses by target.
type CTCTotalArgs struct {
	Loss, Losses, TargetLengths uint64
	Mean, Samples               int64
}
