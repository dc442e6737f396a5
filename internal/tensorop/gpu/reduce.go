package gpu

import (
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

var reductions = map[string]int64{"Sum": kernels.Sum, "Max": kernels.Maximum, "Min": kernels.Minimum}

// Reductions over many elements with few results are made in two steps, the
// first with so many elements a partial result, so that all of the GPU works.
const (
	rowChunk    = 4096
	columnChunk = 512
	enough      = 512 // blocks that keep any GPU busy
)

// Reduce computes a sum, maximum or minimum along axes, or of all elements.
// NaN is passed on by all three.
func (g *Ops) Reduce(op string, a tensor.Tensor, axes []int) (tensor.Tensor, bool, error) {
	var v [1]view
	if g == nil || !g.floatsOf(v[:], a) {
		return nil, false, nil
	}
	across, along, ok := splitAxes(&v[0], axes)
	if !ok {
		return nil, false, nil
	}
	args := kernels.ReduceArgs{A: v[0].address(), Op: reductions[op], Results: int64(across.n), N: int64(along.n)}
	var okOuter, okInner bool
	args.Outer, okOuter = walk1(across.shape, across.strides)
	args.Inner, okInner = walk1(along.shape, along.strides)
	if !okOuter || !okInner {
		return nil, false, nil
	}
	dst, err := g.fresh(v[0].dt, across.shape)
	if err != nil {
		return nil, true, err
	}
	return g.finish(&dst, &operand.Options{}, g.reduceTo(op, dst.address(), &args, v[0].double()))
}

// reduceTo reduces in one step or two.
func (g *Ops) reduceTo(op string, dst uint64, args *kernels.ReduceArgs, double bool) error {
	columns := args.Outer.Stride[args.Outer.Dims-1] == 1 && args.Inner.Stride[args.Inner.Dims-1] != 1
	chunk, results := int64(rowChunk), args.Results
	if columns {
		chunk, results = columnChunk, (args.Results+Warp-1)/Warp
	}
	if args.N <= chunk || results >= enough {
		args.Dst, args.Chunk, args.Chunks = dst, args.N, 1
		return g.reduceStep(op, args, columns, double)
	}
	chunks := min((args.N+chunk-1)/chunk, enough)
	args.Chunk = (args.N + chunks - 1) / chunks
	args.Chunks = (args.N + args.Chunk - 1) / args.Chunk
	size := ElementSize(double) * args.Results * args.Chunks
	partial, err := g.m.Scratch(size)
	if err != nil {
		return g.m.Error(op, err)
	}
	defer g.m.FreeScratch(partial, size)
	args.Dst = uint64(partial)
	if err := g.reduceStep(op, args, columns, double); err != nil {
		return err
	}
	last := kernels.ReduceArgs{A: args.Dst, Dst: dst, Op: args.Op, Results: args.Results, N: args.Chunks, Chunk: args.Chunks, Chunks: 1}
	last.Outer = kernels.Walk{Dims: 1, Shape: [kernels.MaxDims]int64{args.Results}, Stride: [kernels.MaxDims]int64{args.Chunks}}
	last.Inner = kernels.Walk{Dims: 1, Shape: [kernels.MaxDims]int64{args.Chunks}, Stride: [kernels.MaxDims]int64{1}}
	return g.reduceStep(op, &last, false, double)
}

func (g *Ops) reduceStep(op string, args *kernels.ReduceArgs, columns, double bool) error {
	l := kernels.Launch{Kernel: kernels.ReduceRows.Of(double), Y: 1, Args: unsafe.Pointer(args)}
	if columns {
		const lanes = 16 // of reduce_columns
		l.Kernel, l.Block = kernels.ReduceColumns.Of(double), Warp*lanes
		l.X = Blocks(int((args.Results+Warp-1)/Warp*args.Chunks), 1)
		return g.Launch(op, l)
	}
	l.Block = min(Block, (int(args.Chunk)+Warp-1)/Warp*Warp)
	l.X = Blocks(int(args.Results*args.Chunks), 1)
	return g.Launch(op, l)
}

// ArgReduce finds where the largest or smallest elements along an axis are, or
// of all.
func (g *Ops) ArgReduce(op string, a tensor.Tensor, axis int) (tensor.Tensor, bool, error) {
	var v [1]view
	if g == nil || !g.floatsOf(v[:], a) || len(v[0].shape) == 0 {
		return nil, false, nil
	}
	axes := []int{axis}
	if axis == tensor.AllAxes {
		axes = nil
		if !v[0].rowMajor() {
			return nil, false, nil // tensor counts in memory order then
		}
	}
	across, along, ok := splitAxes(&v[0], axes)
	if !ok {
		return nil, false, nil
	}
	args := kernels.ArgArgs{A: v[0].address(), Op: kernels.Maximum, Results: int64(across.n), N: int64(along.n)}
	if op == "Argmin" {
		args.Op = kernels.Minimum
	}
	var okOuter, okInner bool
	args.Outer, okOuter = walk1(across.shape, across.strides)
	args.Inner, okInner = walk1(along.shape, along.strides)
	if !okOuter || !okInner {
		return nil, false, nil
	}
	dst, err := g.fresh(tensor.Int, across.shape)
	if err != nil {
		return nil, true, err
	}
	args.Dst = dst.address()
	return g.finish(&dst, &operand.Options{}, g.Rows(op, kernels.Arg.Of(v[0].double()), across.n, unsafe.Pointer(&args)))
}

// Rows launches a kernel that does a row a warp.
func (g *Ops) Rows(op string, k kernels.Kernel, n int, args unsafe.Pointer) error {
	const warps = 4
	return g.Launch(op, kernels.Launch{Kernel: k, X: Blocks(n, warps), Y: 1, Block: warps * Warp, Args: args})
}

// SoftMax computes SoftMax or, if log, LogSoftMax along an axis of ts[0], or
// what goes back through it, when ts are its output and the gradient by that.
func (g *Ops) SoftMax(op string, log bool, axis int, o *operand.Options, ts ...tensor.Tensor) (tensor.Tensor, bool, error) {
	var in [2]view
	v := in[:len(ts)]
	if g == nil || !g.floatsOf(v, ts...) || len(v[0].shape) == 0 {
		return nil, false, nil
	}
	x := &v[0]
	if axis = (axis%len(x.shape) + len(x.shape)) % len(x.shape); o.Incr != nil {
		return nil, false, nil
	}
	for i := range v {
		if !v[i].rowMajor() || v[i].n != x.n || !v[i].d.Shape().Eq(x.d.Shape()) {
			return nil, false, nil
		}
	}
	dst, _, ok, err := g.output(x, o, x.dt, x.shape)
	if !ok || err != nil {
		return nil, ok, err
	}
	ok = dst.rowMajor()
	for i := range v {
		ok = ok && !dst.clashes(&v[i])
	}
	if !ok {
		g.drop(&dst, o)
		return nil, false, nil
	}
	args := kernels.SoftMaxArgs{Dst: dst.address(), A: x.address(), N: int64(x.shape[axis])}
	_, args.Inner = around(x.shape, axis)
	args.Rows = int64(x.n) / args.N
	if log {
		args.Log = 1
	}
	k := kernels.SoftMax
	if len(v) == 2 {
		k, args.G = kernels.SoftMaxBack, v[1].address()
	}
	return g.finish(&dst, o, g.Rows(op, k.Of(x.double()), int(args.Rows), unsafe.Pointer(&args)))
}
