package cupool

import (
	"errors"
	"runtime"

	"gorgonia.org/tensor"
)

// Reductions and the operations that move elements, as tensor.StdEng does
// them, with the result in the pool.

// axesOp is a reduction along axes.
type axesOp func(e tensor.StdEng, a tensor.Tensor, along ...int) (tensor.Tensor, error)

func (e *Engine) along(op string, f axesOp, a tensor.Tensor, along []int) (tensor.Tensor, error) {
	return e.run(op, func(h []tensor.Tensor, _ []tensor.FuncOpt) (tensor.Tensor, error) {
		return f(std, h[0], along...)
	}, nil, a)
}

// Sum implements tensor.Sumer.
func (e *Engine) Sum(a tensor.Tensor, along ...int) (tensor.Tensor, error) {
	defer keepAlive(a)
	if r, ok, err := e.gpu.reduce("Sum", a, along); ok {
		return r, err
	}
	return e.along("Sum", tensor.StdEng.Sum, a, along)
}

// Min implements tensor.Miner.
func (e *Engine) Min(a tensor.Tensor, along ...int) (tensor.Tensor, error) {
	defer keepAlive(a)
	if r, ok, err := e.gpu.reduce("Min", a, along); ok {
		return r, err
	}
	return e.along("Min", tensor.StdEng.Min, a, along)
}

// Max implements tensor.Maxer.
func (e *Engine) Max(a tensor.Tensor, along ...int) (tensor.Tensor, error) {
	defer keepAlive(a)
	if r, ok, err := e.gpu.reduce("Max", a, along); ok {
		return r, err
	}
	return e.along("Max", tensor.StdEng.Max, a, along)
}

// Argmax implements tensor.Argmaxer.
func (e *Engine) Argmax(t tensor.Tensor, axis int) (tensor.Tensor, error) {
	defer keepAlive(t)
	if r, ok, err := e.gpu.argReduce("Argmax", t, axis); ok {
		return r, err
	}
	return e.along("Argmax", func(std tensor.StdEng, t tensor.Tensor, axes ...int) (tensor.Tensor, error) {
		return std.Argmax(t, axes[0])
	}, t, []int{axis})
}

// Argmin implements tensor.Argminer.
func (e *Engine) Argmin(t tensor.Tensor, axis int) (tensor.Tensor, error) {
	defer keepAlive(t)
	if r, ok, err := e.gpu.argReduce("Argmin", t, axis); ok {
		return r, err
	}
	return e.along("Argmin", func(std tensor.StdEng, t tensor.Tensor, axes ...int) (tensor.Tensor, error) {
		return std.Argmin(t, axes[0])
	}, t, []int{axis})
}

// Reduce implements tensor.Reducer.
func (e *Engine) Reduce(fn interface{}, a tensor.Tensor, axis int, defaultValue interface{}, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.run("Reduce", func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return std.Reduce(fn, h[0], axis, defaultValue, opts...)
	}, opts, a)
}

// OptimizedReduce implements tensor.OptimizedReducer.
func (e *Engine) OptimizedReduce(a tensor.Tensor, axis int, firstFn, lastFn, defaultFn, defaultValue interface{}, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.run("OptimizedReduce", func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return std.OptimizedReduce(h[0], axis, firstFn, lastFn, defaultFn, defaultValue, opts...)
	}, opts, a)
}

// Transpose implements tensor.Transposer: it moves the elements of a, which
// is marked as transposed already.
func (e *Engine) Transpose(a tensor.Tensor, expStrides []int) error {
	defer keepAlive(a)
	if ok, err := e.gpu.transpose(a, expStrides); ok {
		e.lose("Transpose", err)
		return err
	}
	err := e.runInto("Transpose", a, func(a tensor.Tensor, _ []tensor.Tensor) error {
		return std.Transpose(a, expStrides)
	})
	e.lose("Transpose", err) // Reshape and tensor.Transpose drop it
	return err
}

// Concat implements tensor.Concater.
func (e *Engine) Concat(t tensor.Tensor, axis int, others ...tensor.Tensor) (tensor.Tensor, error) {
	defer keepAlive(t)
	defer keepAlive(others...)
	if r, ok, err := e.gpu.concat(t, axis, others); ok {
		return r, err
	}
	return e.run("Concat", func(h []tensor.Tensor, _ []tensor.FuncOpt) (tensor.Tensor, error) {
		return std.Concat(h[0], axis, h[1:]...)
	}, nil, append([]tensor.Tensor{t}, others...)...)
}

// StackDense implements tensor.DenseStacker.
func (e *Engine) StackDense(t tensor.DenseTensor, axis int, others ...tensor.DenseTensor) (tensor.DenseTensor, error) {
	defer keepAlive(t)
	defer keepAlive(others...)
	if r, ok, err := e.gpu.stack(t, axis, others); ok {
		d, _ := r.(tensor.DenseTensor)
		return d, err
	}
	ts := []tensor.Tensor{t}
	for _, o := range others {
		ts = append(ts, o)
	}
	r, err := e.run("Stack", func(h []tensor.Tensor, _ []tensor.FuncOpt) (tensor.Tensor, error) {
		ds := make([]tensor.DenseTensor, len(h))
		for i := range h {
			ds[i] = h[i].(tensor.DenseTensor) // as its original
		}
		return std.StackDense(ds[0], axis, ds[1:]...)
	}, nil, ts...)
	if err != nil {
		return nil, err
	}
	return r.(tensor.DenseTensor), nil
}

// Repeat implements tensor.Repeater.
func (e *Engine) Repeat(t tensor.Tensor, axis int, repeats ...int) (tensor.Tensor, error) {
	defer keepAlive(t)
	if r, ok, err := e.gpu.repeat(t, nil, axis, repeats); ok {
		return r, err
	}
	if shape, times, ok := e.repeats(t, axis, repeats); ok {
		return e.into(t.Dtype(), shape, func(out *tensor.Dense) error {
			copyRepeated(out, t, axis, times)
			return nil
		})
	}
	return e.run("Repeat", func(h []tensor.Tensor, _ []tensor.FuncOpt) (tensor.Tensor, error) {
		return std.Repeat(h[0], axis, repeats...)
	}, nil, t)
}

// RepeatReuse implements tensor.Repeater.
func (e *Engine) RepeatReuse(t, reuse tensor.Tensor, axis int, repeats ...int) (tensor.Tensor, error) {
	defer keepAlive(t, reuse)
	if r, ok, err := e.gpu.repeat(t, reuse, axis, repeats); ok {
		return r, err
	}
	if shape, times, ok := e.repeats(t, axis, repeats); ok && plain(reuse) && e.serves(reuse) && reuse.Shape().Eq(shape) && reuse.Dtype() == t.Dtype() {
		if err := e.hostReady(); err != nil {
			return nil, err
		}
		copyRepeated(reuse, t, axis, times)
		return reuse, nil
	}
	err := e.runInto("Repeat", reuse, func(reuse tensor.Tensor, h []tensor.Tensor) error {
		_, err := std.RepeatReuse(h[0], reuse, axis, repeats...)
		return err
	}, t)
	if err != nil {
		return nil, err
	}
	return reuse, nil
}

// repeats returns the shape of a repeated tensor and how often each slice along
// the axis is in it, if copyRepeated serves: StdEng makes Go objects for each
// of them.
func (e *Engine) repeats(t tensor.Tensor, axis int, repeats []int) (shape tensor.Shape, times []int, ok bool) {
	if !e.accessible || !plain(t) || !e.serves(t) || axis < 0 || axis >= t.Dims() || t.(*tensor.Dense).IsMasked() {
		return nil, nil, false
	}
	shape, times, _, err := t.Shape().Repeat(axis, repeats...)
	return shape, times, err == nil
}

// copyRepeated copies each slice of t along an axis so many times to dst.
func copyRepeated(dst, t tensor.Tensor, axis int, times []int) {
	inner := int(t.Dtype().Size())
	for _, n := range t.Shape()[axis+1:] {
		inner *= n
	}
	p, n := extent(t)
	from := cpuBytes(p, n)
	p, n = extent(dst)
	to := cpuBytes(p, n)
	for len(from) > 0 {
		for _, n := range times {
			for range n {
				copy(to[:inner], from)
				to = to[inner:]
			}
			from = from[inner:]
		}
	}
	runtime.KeepAlive(t)
	runtime.KeepAlive(dst)
}

// Diag implements tensor.Diager. As StdEng's, the result has the shape of t,
// begins with the diagonal's elements, and is zero behind them.
func (e *Engine) Diag(t tensor.Tensor) (tensor.Tensor, error) {
	return e.run("Diag", func(h []tensor.Tensor, _ []tensor.FuncOpt) (tensor.Tensor, error) {
		return std.Diag(h[0])
	}, nil, t)
}

// SelectByIndices implements tensor.ByIndiceser. Unlike StdEng it heeds
// WithReuse.
func (e *Engine) SelectByIndices(a, indices tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	defer keepAlive(a, indices)
	o := parseOpts(opts)
	if r, ok, err := e.gpu.selectByIndices(a, indices, axis, &o); ok {
		return r, err
	}
	if shape, ok := e.selectsRows(a, indices); ok && axis == 0 && o.incr == nil && !o.unsafe {
		switch dst := o.reuse; {
		case dst == nil:
			return e.into(a.Dtype(), shape, func(out *tensor.Dense) error {
				copyRows(out, a, indices)
				return nil
			})
		case plain(dst) && e.serves(dst) && dst.Dtype() == a.Dtype() && dst.Shape().Eq(shape) && apart(dst, []tensor.Tensor{a, indices}):
			if err := e.hostReady(); err != nil {
				return nil, err
			}
			copyRows(dst, a, indices)
			return dst, nil
		}
	}
	if o.reuse != nil {
		err := e.runInto("SelectByIndices", o.reuse, func(dst tensor.Tensor, h []tensor.Tensor) error {
			r, err := std.SelectByIndices(h[0], h[1], axis)
			if err != nil {
				return err
			}
			return tensor.Copy(dst, r)
		}, a, indices)
		return o.reuse, err
	}
	return e.run("SelectByIndices", func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return std.SelectByIndices(h[0], h[1], axis, opts...)
	}, opts, a, indices)
}

// selectsRows returns the shape of what indices select along the first axis, if
// copyRows serves.
func (e *Engine) selectsRows(a, indices tensor.Tensor) (tensor.Shape, bool) {
	at, ok := indices.(*tensor.Dense)
	if !ok || !e.accessible || !plain(a) || !e.serves(a, at) || a.(*tensor.Dense).IsMasked() ||
		at.Dtype() != tensor.Int || at.Dims() != 1 || at.RequiresIterator() || at.MemSize() == 0 || e.hostReady() != nil {
		return nil, false
	}
	for _, i := range at.Ints() {
		if i < 0 || i >= a.Shape()[0] {
			return nil, false
		}
	}
	shape := a.Shape().Clone()
	shape[0] = at.Shape().TotalSize()
	return shape, true
}

// copyRows copies the slices of a along the first axis that the indices name to
// dst.
func copyRows(dst, a, indices tensor.Tensor) {
	p, n := extent(a)
	from := cpuBytes(p, n)
	p, n = extent(dst)
	to := cpuBytes(p, n)
	row := len(from) / a.Shape()[0]
	for _, i := range indices.(*tensor.Dense).Ints() {
		copy(to[:row], from[i*row:])
		to = to[row:]
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(dst)
	runtime.KeepAlive(indices)
}

// SelectByIndicesB implements tensor.ByIndiceser.
func (e *Engine) SelectByIndicesB(input, outGrad, indices tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.run("SelectByIndicesB", func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return std.SelectByIndicesB(h[0], h[1], h[2], axis, opts...)
	}, opts, input, outGrad, indices)
}

// Materialize returns a copy of a view or transposed tensor in the pool, in
// row-major order, and any other tensor as it is.
func (e *Engine) Materialize(t tensor.Tensor) (tensor.Tensor, error) {
	defer keepAlive(t)
	if v, ok := t.(tensor.View); !ok || !v.IsMaterializable() {
		return t, nil
	}
	if r, ok, err := e.gpu.materialize(t); ok {
		return r, err
	}
	return e.run("Materialize", func(h []tensor.Tensor, _ []tensor.FuncOpt) (tensor.Tensor, error) {
		return tensor.Materialize(h[0]), nil
	}, nil, t)
}

// Compute calls f with tensors of tensor.StdEng that have the data of ts, or
// copies of it where the CPU cannot touch the memory, and moves f's result to
// the pool. f may call everything that tensor has, and must not change the
// tensors or keep them. It serves what tensor does past its engine (see
// Engine). It fails with f's error or an *EngineError around
// ErrUseAfterFree, ErrNotSupported or what the allocator or device says.
func (e *Engine) Compute(f func(ts []*tensor.Dense) (*tensor.Dense, error), ts ...*tensor.Dense) (*tensor.Dense, error) {
	in := make([]tensor.Tensor, len(ts))
	for i, t := range ts {
		in[i] = t
	}
	r, err := e.run("Compute", func(h []tensor.Tensor, _ []tensor.FuncOpt) (tensor.Tensor, error) {
		ds := make([]*tensor.Dense, len(h))
		for i := range h {
			ds[i] = h[i].(*tensor.Dense)
		}
		r, err := f(ds)
		if r == nil && err == nil {
			err = errors.New("cupool: Compute: no result")
		}
		return r, err
	}, nil, in...)
	if err != nil {
		return nil, err
	}
	return r.(*tensor.Dense), nil
}
