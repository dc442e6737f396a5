package nn

import (
	"math"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// processors is the number of multiprocessors of an H200, by whose times products
// are divided.
const processors = 132

// imagesAtOnce returns how many images one launch may do, 0 where a single one is
// too large for the kernels, which count in 32 bits.
func (s *convSize) imagesAtOnce() int {
	if s.out*s.Products() >= kernels.ConvLimit {
		return 0
	}
	for i := range 2 {
		if s.In[i]+2*s.Pad[i]+s.Taps[i]*s.Dilation[i]+s.Stride[i] >= kernels.ConvLimit {
			return 0
		}
	}
	return (kernels.ConvLimit - 1) / max(1, s.Image(), s.out*s.Pixels())
}

// convOnGPU is Conv2d in one launch, but for very large batches.
func convOnGPU(g *gpu.Ops, op string, s convSize, x, w, bias, y tensor.Tensor, act Activation) (bool, error) {
	a := forward(&s)
	a.Activation = int64(act)
	if !g.Addresses([]*uint64{&a.Src, &a.W, &a.Bias, &a.Dst}, x, w, bias, y) || s.imagesAtOnce() == 0 {
		return false, nil
	}
	part := kernels.ConvPart{High: int64(s.Out[0]), Wide: int64(s.Out[1]), TapsY: int64(s.Taps[0]), TapsX: int64(s.Taps[1]),
		FirstY: -int64(s.Pad[0]), FirstX: -int64(s.Pad[1])}
	return true, gather(g, op, &s, a, []kernels.ConvPart{part}, isDouble(x))
}

// forward returns the sizes of Conv2d for the kernel.
func forward(s *convSize) kernels.ConvArgs {
	return kernels.ConvArgs{Rows: int64(s.out), Channels: int64(s.Channels), Height: int64(s.In[0]), Width: int64(s.In[1]),
		MulY: int64(s.Stride[0]), MulX: int64(s.Stride[1]), StepY: int64(s.Dilation[0]), StepX: int64(s.Dilation[1]),
		WRow: int64(s.Products()), WChannel: int64(s.Taps[0] * s.Taps[1]), WTapY: int64(s.Taps[1]), WTapX: 1,
		DstPlane: int64(s.Pixels()), DstRow: int64(s.Out[1]), DstColumn: 1}
}

// convBackOnGPU is Conv2dBack: a launch for dx, and two for dw and db.
func convBackOnGPU(g *gpu.Ops, op string, s convSize, x, w, dz, dx, dw, db tensor.Tensor, act Activation) (bool, error) {
	a, parts := backward(&s)
	a.Activation = int64(act)
	b := kernels.ConvWeightsArgs{Rows: int64(s.out), ConvWindow: windowOf(&s)}
	sum := kernels.ConvSumArgs{Rows: int64(s.out)}
	if !g.Addresses([]*uint64{&a.Y, &a.W, &a.Src, &a.Dst, &sum.DW, &sum.DB}, x, w, dz, dx, dw, db) || s.imagesAtOnce() == 0 {
		return false, nil
	}
	if b.X, b.DZ = a.Y, a.Src; act == NoActivation {
		a.Y = 0
	}
	if !operand.IsNil(dw) || !operand.IsNil(db) {
		if err := weightsOnGPU(g, op, &s, b, sum, isDouble(x)); err != nil {
			return true, err
		}
	}
	if operand.IsNil(dx) {
		return true, nil
	}
	return true, gather(g, op, &s, a, parts, isDouble(x))
}

// backward returns what the gradient by the input gathers from the one by the
// result. Elements of the image that the window's elements come upon in the same
// way are a part of their own, so that nothing is multiplied in vain.
func backward(s *convSize) (kernels.ConvArgs, []kernels.ConvPart) {
	ys, stepY := phases(s, 0)
	xs, stepX := phases(s, 1)
	a := kernels.ConvArgs{Rows: int64(s.Channels), Channels: int64(s.out), Height: int64(s.Out[0]), Width: int64(s.Out[1]),
		MulY: 1, MulX: 1, StepY: int64(-s.Dilation[0] * stepY / s.Stride[0]), StepX: int64(-s.Dilation[1] * stepX / s.Stride[1]),
		WRow: int64(s.Taps[0] * s.Taps[1]), WChannel: int64(s.Products()), WTapY: int64(stepY * s.Taps[1]), WTapX: int64(stepX),
		DstPlane: int64(s.In[0] * s.In[1]), DstRow: int64(s.Stride[0] * s.In[1]), DstColumn: int64(s.Stride[1])}
	var parts []kernels.ConvPart
	for _, y := range ys {
		for _, x := range xs {
			parts = append(parts, kernels.ConvPart{High: int64(y.n), Wide: int64(x.n), TapsY: int64(y.taps), TapsX: int64(x.taps),
				FirstY: int64(y.at), FirstX: int64(x.at), WFirst: int64(y.tap*s.Taps[1] + x.tap), DstFirst: int64(y.first*s.In[1] + x.first)})
		}
	}
	return a, parts
}

// A phase is n of an image's rows or columns, every stride-th from the first on,
// which the same elements of the window come upon: taps of them, every step-th from
// tap on. The first comes upon the first of them at a place in the result.
type phase struct{ first, n, tap, taps, at int }

// phases returns the phases along an axis, and the step.
func phases(s *convSize, axis int) (all []phase, step int) {
	size, stride, dilation, taps := s.In[axis], s.Stride[axis], s.Dilation[axis], s.Taps[axis]
	step = stride / divisor(stride, dilation)
	for first := range min(stride, size) {
		p := phase{first: first, n: (size - first + stride - 1) / stride}
		for tap := range min(step, taps) {
			if d := first + s.Pad[axis] - tap*dilation; d%stride == 0 {
				p.tap, p.taps, p.at = tap, (taps-tap+step-1)/step, d/stride
				break
			}
		}
		all = append(all, p)
	}
	return all, step
}

// divisor returns the greatest common divisor.
func divisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// gather launches ConvGather for all parts and images.
func gather(g *gpu.Ops, op string, s *convSize, a kernels.ConvArgs, parts []kernels.ConvPart, double bool) error {
	size := uint64(gpu.ElementSize(double))
	for left := s.n; left > 0; left -= int(a.Batch) {
		a.Batch = int64(min(left, s.imagesAtOnce()))
		plan(&a, parts, double)
		if err := gatherPlanned(g, op, a, parts, double); err != nil {
			return err
		}
		a.Src += uint64(a.Batch*a.Channels*a.Height*a.Width) * size
		a.Dst += uint64(a.Batch*a.Rows*a.DstPlane) * size
		if a.Y != 0 {
			a.Y += uint64(a.Batch*a.Rows*a.DstPlane) * size
		}
	}
	return nil
}

// gatherPlanned launches ConvGather for so many images as it takes at once, and
// ConvFinish where sums are split.
func gatherPlanned(g *gpu.Ops, op string, a kernels.ConvArgs, parts []kernels.ConvPart, double bool) error {
	if a.Splits == 1 {
		return gatherParts(g, op, a, parts, double)
	}
	f := kernels.ConvFinishArgs{Dst: a.Dst, Bias: a.Bias, Y: a.Y, Activation: a.Activation, N: a.Size, Parts: a.Splits, Rows: a.Rows, Plane: a.DstPlane}
	return g.WithScratch(op, a.Splits*a.Size*gpu.ElementSize(double), func(at uint64) error {
		f.Sums, a.Dst, a.Bias, a.Y, a.Activation = at, at, 0, 0, kernels.ActNone
		if err := gatherParts(g, op, a, parts, double); err != nil {
			return err
		}
		return g.Each(op, kernels.ConvFinish.Of(double), int(f.N), unsafe.Pointer(&f))
	})
}

// gatherParts launches ConvGather for all parts.
func gatherParts(g *gpu.Ops, op string, a kernels.ConvArgs, parts []kernels.ConvPart, double bool) error {
	t := kernels.ConvTiles(double)[a.Tile]
	for len(parts) > 0 {
		n, blocks := copy(a.Part[:], parts), int64(0)
		for i := range n {
			blocks = max(blocks, gatherBlocks(&a, &parts[i], t))
		}
		parts = parts[n:]
		err := g.Launch(op, kernels.Launch{Kernel: kernels.ConvGather.Of(double), X: int(blocks * a.Splits), Y: n, Block: int(t.Threads), Args: unsafe.Pointer(&a)})
		if err != nil {
			return err
		}
	}
	return nil
}

// gatherBlocks returns how many tiles a part has.
func gatherBlocks(a *kernels.ConvArgs, p *kernels.ConvPart, t kernels.ConvTile) int64 {
	return upTo(a.Rows, t.Rows) * upTo(a.Batch*p.High*p.Wide, t.Cols)
}

// upTo returns how many times each has to be taken to reach n.
func upTo(n, each int64) int64 { return (n + each - 1) / each }

// plan chooses the tile and the splits that take least time: a few blocks would take
// long without splitting sums.
func plan(a *kernels.ConvArgs, parts []kernels.ConvPart, double bool) {
	const most, ends, worth = 4, 4, 8 // chunks that a split has to have
	a.Size = a.Batch * a.Rows * a.DstPlane
	least := int64(math.MaxInt64)
	for i, t := range kernels.ConvTiles(double) {
		for splits := int64(1); splits <= most; splits++ {
			var w work
			for p := range parts {
				chunks := upTo(upTo(a.Channels*parts[p].TapsY*parts[p].TapsX, t.Chunk), splits)
				w.add(gatherBlocks(a, &parts[p], t)*splits, chunks+ends)
			}
			time := w.time(t)
			if splits > 1 { // one launch is better unless two are clearly so
				time = (time + sumTime(a.Size, splits)) * 11 / 10
			}
			if time < least && (splits == 1 || w.longest >= worth+ends) {
				a.Tile, a.Splits, least = int64(i), splits, time
			}
		}
	}
}

// sumTime is how long it takes an H200 to add up parts of n elements each, in
// nanoseconds.
func sumTime(n, parts int64) int64 { return 1800 + n*parts*4/3000 }

// work is that of a launch: blocks, and how many chunks they and the longest of them
// have. What a block does besides counts as some chunks.
type work struct{ blocks, chunks, longest int64 }

func (w *work) add(blocks, chunks int64) {
	w.blocks += blocks
	w.chunks += blocks * chunks
	w.longest = max(w.longest, chunks)
}

// time is how long the work takes an H200, in nanoseconds: at least as long as the
// longest block alone, and as the multiprocessor that has most blocks.
func (w *work) time(t kernels.ConvTile) int64 {
	return max(w.longest*t.Wait, upTo(w.blocks, processors)*w.chunks*t.Busy/w.blocks)
}

// weightsOnGPU sets dw and db in two steps: sums over so many pixels each, and
// their sums.
func weightsOnGPU(g *gpu.Ops, op string, s *convSize, a kernels.ConvWeightsArgs, sum kernels.ConvSumArgs, double bool) error {
	if sum.DW != 0 {
		a.Taps = int64(s.Products())
	}
	a.Columns = a.Taps
	if sum.DB != 0 {
		a.Columns++
	}
	a.Batch = int64(min(s.n, s.imagesAtOnce()))
	divide(&a, double)
	rest := int64(s.n) % a.Batch
	sum.Taps, sum.Columns = a.Taps, a.Columns
	sum.Parts = int64(s.n)/a.Batch*upTo(a.Batch*a.High*a.Wide, a.Span) + upTo(rest*a.High*a.Wide, a.Span)
	bytes := sum.Parts * sum.Rows * sum.Columns * gpu.ElementSize(double)
	return g.WithScratch(op, bytes, func(at uint64) error {
		a.Sums, sum.Sums = at, at
		if err := partialSums(g, op, s.n, a, double); err != nil {
			return err
		}
		return addUp(g, op, sum, double)
	})
}

// divide chooses the tile and the span that take least time.
func divide(a *kernels.ConvWeightsArgs, double bool) {
	const most, ends = 4, 2 // blocks that a multiprocessor is to have
	pixels, least := a.Batch*a.High*a.Wide, int64(math.MaxInt64)
	for i, t := range kernels.ConvWeightsTiles(double) {
		tiles := upTo(a.Rows, t.Rows) * upTo(a.Columns, t.Cols)
		for each := int64(1); each <= most; each++ {
			span := upTo(upTo(pixels, max(1, each*processors/tiles)), t.Chunk) * t.Chunk
			parts := upTo(pixels, span)
			var w work
			w.add(tiles*parts, span/t.Chunk+ends)
			if time := w.time(t) + sumTime(a.Rows*a.Columns, parts); time < least {
				a.Tile, a.Span, least = int64(i), span, time
			}
		}
	}
}

// partialSums launches ConvWeights for all of n images.
func partialSums(g *gpu.Ops, op string, n int, a kernels.ConvWeightsArgs, double bool) error {
	t, size := kernels.ConvWeightsTiles(double)[a.Tile], uint64(gpu.ElementSize(double))
	for left := int64(n); left > 0; left -= a.Batch {
		a.Batch = min(a.Batch, left)
		parts := upTo(a.Batch*a.High*a.Wide, a.Span)
		err := g.Launch(op, kernels.Launch{Kernel: kernels.ConvWeights.Of(double), X: int(upTo(a.Rows, t.Rows) * upTo(a.Columns, t.Cols)), Y: int(parts),
			Block: int(t.Threads), Args: unsafe.Pointer(&a)})
		if err != nil {
			return err
		}
		a.Sums += uint64(parts*a.Rows*a.Columns) * size
		a.X += uint64(a.Batch*a.Channels*a.Height*a.Width) * size
		a.DZ += uint64(a.Batch*a.Rows*a.High*a.Wide) * size
	}
	return nil
}

// addUp launches ConvSum.
func addUp(g *gpu.Ops, op string, sum kernels.ConvSumArgs, double bool) error {
	for sum.Lanes = 1; sum.Lanes < gpu.Warp && sum.Lanes*8 < sum.Parts; {
		sum.Lanes *= 2
	}
	blocks := upTo(sum.Rows*sum.Columns, kernels.ConvSumThreads/sum.Lanes)
	return g.Launch(op, kernels.Launch{Kernel: kernels.ConvSum.Of(double), X: int(blocks), Y: 1, Block: kernels.ConvSumThreads, Args: unsafe.Pointer(&sum)})
}

// windowOf returns the sizes of a convolution for the kernels.
func windowOf(s *convSize) kernels.ConvWindow {
	return kernels.ConvWindow{Channels: int64(s.Channels), Height: int64(s.In[0]), Width: int64(s.In[1]), High: int64(s.Out[0]), Wide: int64(s.Out[1]),
		TapsY: int64(s.Taps[0]), TapsX: int64(s.Taps[1]), PadY: int64(s.Pad[0]), PadX: int64(s.Pad[1]),
		StrideY: int64(s.Stride[0]), StrideX: int64(s.Stride[1]), DilationY: int64(s.Dilation[0]), DilationX: int64(s.Dilation[1])}
}

// columnsOnGPU is Im2Col or, back, Col2Im.
func columnsOnGPU(g *gpu.Ops, op string, s convSize, x, col tensor.Tensor, back bool) (bool, error) {
	a := kernels.Im2ColArgs{ConvWindow: windowOf(&s)}
	if !g.Addresses([]*uint64{&a.X, &a.Col}, x, col) {
		return false, nil
	}
	k, n := kernels.Im2Col, col.Shape().TotalSize()
	if back {
		k, n = kernels.Col2Im, x.Shape().TotalSize()
	}
	a.N = int64(n)
	return true, g.Each(op, k.Of(isDouble(x)), n, unsafe.Pointer(&a))
}
