package kernels

// The structures below are the arguments of the kernels of random.cu. DrawAt,
// if not 0, is where an int64 is that is added to Stream.

// RandomArgs are those of Random: uniform in [P, P+Q), or normal with mean P
// and deviation Q.
type RandomArgs struct {
	Dst, Seed, Stream, DrawAt uint64
	P, Q                      float64
	Normal, N                 int64
}

// DropoutArgs are those of Dropout. Dst may be A.
type DropoutArgs struct {
	Dst, A, Seed, Stream, DrawAt uint64
	Keep, Scale                  float64 // the probability, and what is kept is multiplied by
	N                            int64
}

// BinomialArgs are those of Binomial.
type BinomialArgs struct {
	Dst, Seed, Stream, DrawAt uint64
	P                         float64
	Trials, N                 int64
}

// NextDrawArgs are those of NextDraw, which has one thread.
type NextDrawArgs struct {
	Draw uint64
}
