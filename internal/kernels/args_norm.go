package kernels

// NormArgs are those of the kernels that normalize Channels, each of Plane
// elements in each sample of a Batch: NormMoments and NormApply one after the
// other, NormApply alone without Training, and NormSums and NormBack. A channel's
// elements are in Chunks, at most NormChunks, of Chunk each; a block works on one.
// Addresses of what is not wanted are 0.
type NormArgs struct {
	X, Y, DY, DX, Scale, Bias, DScale, DBias    uint64
	Mean, Inverse, RunningMean, RunningVariance uint64
	Parts                                       uint64 // two numbers for each chunk
	Batch, Channels, Plane, Chunk, Chunks       int64
	Momentum, Epsilon                           float64
	Training, Activation                        int64
}

// NormChunks are the most chunks of a channel.
const NormChunks = 32
