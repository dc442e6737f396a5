package kernels

// ConvParts is the number of products that one launch of ConvGather makes.
const ConvParts = 4

// ConvLimit bounds what ConvGather and ConvWeights count.
const ConvLimit = 1 << 30

// A ConvPart is the pixels (i, j) of High×Wide of an image
//
//	Dst[n, row, i, j] = Σ W[row, c, ty, tx]·Src[n, c, i·MulY + FirstY + ty·StepY, ...]
//
// over channels c and taps. The source is 0 outside.
type ConvPart struct {
	High, Wide, TapsY, TapsX, FirstY, FirstX int64
	WFirst, DstFirst                         int64 // offsets of the first weight and pixel
}

// ConvArgs are those of ConvGather, whose grid has Splits blocks for each tile of
// the largest part in X, and the parts in Y. The result is Act(Dst + Bias) or, with
// a Y, what the activation made, Dst times its slope there. Sums in Splits make as
// many results, Size elements apart, without that. No tensor may have ConvLimit
// elements, and no coordinate be that far outside.
type ConvArgs struct {
	Dst, Src, W, Bias, Y                             uint64 // Bias, Y: 0 for none
	Activation, Batch, Rows, Channels, Height, Width int64  // Height, Width: of the source
	MulY, MulX, StepY, StepX                         int64
	WRow, WChannel, WTapY, WTapX                     int64
	DstPlane, DstRow, DstColumn                      int64
	Tile, Splits, Size                               int64 // Tile: index of ConvTiles
	Part                                             [ConvParts]ConvPart
}

// ConvFinishArgs are those of ConvFinish: Parts tensors of N sums become Dst, as
// ConvArgs has it. Each of Rows channels has Plane elements of an image.
type ConvFinishArgs struct {
	Dst, Sums, Bias, Y                uint64
	Activation, N, Parts, Rows, Plane int64
}

// ConvWindow is the sizes of a convolution as ConvWeights and Im2Col take them:
// of an image, of the result and of the window.
type ConvWindow struct {
	Channels, Height, Width, High, Wide                              int64
	TapsY, TapsX, PadY, PadX, StrideY, StrideX, DilationY, DilationX int64
}

// ConvWeightsArgs are those of ConvWeights, whose grid has a block for each tile in
// X, and for each Span of pixels in Y. Each makes its part of the sums: Rows of
// Columns, which are Taps and one more where the sums of DZ are wanted.
type ConvWeightsArgs struct {
	Sums, X, DZ uint64
	Batch, Rows int64
	ConvWindow
	Taps, Columns, Span int64
	Tile                int64 // index of ConvWeightsTiles
}

// ConvSumArgs are those of ConvSum: Parts of sums, each of Rows×Columns, become DW,
// of Rows×Taps, and DB. Lanes threads, a power of 2 up to 32, make an element. A
// block has ConvSumThreads.
type ConvSumArgs struct {
	DW, DB, Sums                      uint64
	Rows, Taps, Columns, Parts, Lanes int64
}

// ConvSumThreads are a block's of ConvSum.
const ConvSumThreads = 256

// Im2ColArgs are those of Im2Col and Col2Im, which make N elements.
type Im2ColArgs struct {
	X, Col uint64
	N      int64
	ConvWindow
}

// A ConvTile is the part of a product that a block makes, its threads, and how many
// products it sums at a time, a chunk. On an H200, a block alone takes Wait
// nanoseconds for that, and each of many that share a multiprocessor Busy.
type ConvTile struct{ Rows, Cols, Threads, Chunk, Wait, Busy int64 }

// ConvTiles returns the tiles of ConvGather.
func ConvTiles(double bool) []ConvTile {
	if double {
		return convTiles64
	}
	return convTiles32
}

// ConvWeightsTiles returns the tiles of ConvWeights.
func ConvWeightsTiles(double bool) []ConvTile {
	if double {
		return weightsTiles64
	}
	return weightsTiles32
}

var (
	convTiles32 = []ConvTile{{16, 128, 128, 16, 800, 320}, {32, 32, 64, 16, 690, 190}, {32, 64, 128, 16, 660, 310}, {32, 128, 128, 16, 1230, 490},
		{64, 32, 128, 16, 630, 270}, {64, 64, 256, 16, 750, 510}, {64, 64, 256, 16, 700, 500}}
	convTiles64    = []ConvTile{{16, 128, 128, 8, 800, 330}, {32, 32, 64, 8, 700, 170}, {32, 64, 128, 8, 600, 330}, {64, 64, 256, 8, 750, 510}}
	weightsTiles32 = []ConvTile{{32, 16, 128, 32, 350, 230}, {16, 64, 128, 32, 550, 380}, {32, 32, 128, 32, 500, 320}, {32, 64, 256, 32, 750, 620},
		{64, 64, 256, 32, 1000, 860}}
	weightsTiles64 = []ConvTile{{32, 16, 128, 8, 300, 120}, {16, 64, 64, 8, 400, 170}, {32, 32, 64, 8, 400, 170}, {32, 64, 128, 8, 450, 330}, {64, 64, 256, 8, 600, 510}}
)
