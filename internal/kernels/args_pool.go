package kernels

// PoolArgs are those of the pooling kernels over Planes images: MaxPool and
// AvgPool, from X, H×W, to Y, OH×OW, MaxPoolBack, from X, Y and DY to DX,
// AvgPoolBack and AvgPoolSmear, from DY to DX. Window (r, c) begins at
// (r, c)·Stride - Pad. The sum of a window is divided by Divisor, or, if that is
// 0, by the number of the window's elements; AvgPoolSmear needs one.
type PoolArgs struct {
	X, Y, DX, DY         uint64
	Planes, H, W, OH, OW int64
	Size, Pad, Stride    [2]int64
	Divisor              float64
	Activation           int64
}
