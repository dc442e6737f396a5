package cupool

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"gorgonia.org/tensor"
)

// Operations are computed by tensor.StdEng in one of two ways.
//
// Directly, where all operands are plain: the result's memory is taken from
// the pool first, not zeroed, and StdEng told to reuse it (tensor_ops.go).
//
// Through a call, in all other cases: StdEng gets host twins of the operands,
// tensors of its own with the operands' layout, so that whatever it allocates
// on the way comes from Go's heap and goes with it. A twin shares the memory
// of its original where the CPU can touch that, else it has a copy, which is
// copied back afterwards if the operation writes to it. The result is moved
// to the pool.

// call is one operation on host twins.
type call struct {
	e        *Engine
	op       string
	operands []operand
	copied   bool // some twin has a copy
}

// operand is a tensor that an operation was called with.
type operand struct {
	orig, host *tensor.Dense
	copied     bool // host has a copy of orig's data
	out        bool // the operation writes to it
}

// hostFunc computes on host twins.
type hostFunc func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error)

// run calls f with the twins of ts, and opts that name twins too. It returns
// f's result in the pool, or the original where the result is a twin.
func (e *Engine) run(op string, f hostFunc, opts []tensor.FuncOpt, ts ...tensor.Tensor) (tensor.Tensor, error) {
	c := call{e: e, op: op}
	o := parseOpts(opts)
	h, err := c.twins(o.unsafe, ts)
	if err != nil {
		return nil, err
	}
	if opts, err = c.outputs(o, opts); err != nil {
		return nil, err
	}
	r, err := f(h, opts)
	if err != nil {
		return nil, err
	}
	if err := c.writeBack(); err != nil {
		return nil, err
	}
	return c.result(r)
}

// runInto is run for an operation that returns nothing and writes to dst.
func (e *Engine) runInto(op string, dst tensor.Tensor, f func(dst tensor.Tensor, h []tensor.Tensor) error, ts ...tensor.Tensor) error {
	c := call{e: e, op: op}
	h, err := c.twins(false, ts)
	if err != nil {
		return err
	}
	out, err := c.twin(dst, true)
	if err != nil {
		return err
	}
	if err := f(out, h); err != nil {
		return err
	}
	return c.writeBack()
}

// runValue is run for an operation that returns no tensor.
func runValue[T any](e *Engine, op string, f func(h []tensor.Tensor) (T, error), ts ...tensor.Tensor) (T, error) {
	defer keepAlive(ts...)
	c := call{e: e, op: op}
	h, err := c.twins(false, ts)
	if err != nil {
		var none T
		return none, err
	}
	return f(h)
}

// twins returns the twins of ts; firstOut says that the operation writes to
// the first.
func (c *call) twins(firstOut bool, ts []tensor.Tensor) ([]tensor.Tensor, error) {
	if err := c.e.pendingError(); err != nil {
		return nil, err
	}
	if err := c.e.hostReady(); err != nil {
		return nil, err
	}
	h := make([]tensor.Tensor, len(ts))
	for i, t := range ts {
		var err error
		if h[i], err = c.twin(t, firstOut && i == 0); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// outputs returns opts with the twins of the tensors that they name.
func (c *call) outputs(o funcOpts, opts []tensor.FuncOpt) ([]tensor.FuncOpt, error) {
	opts = opts[:len(opts):len(opts)]
	if o.reuse != nil {
		h, err := c.twin(o.reuse, true)
		if err != nil {
			return nil, err
		}
		opts = append(opts, tensor.WithReuse(h))
	}
	if o.incr != nil {
		h, err := c.twin(o.incr, true)
		if err != nil {
			return nil, err
		}
		opts = append(opts, tensor.WithIncr(h))
	}
	return opts, nil
}

// twin returns what StdEng may work on in t's place. Operands that it only
// reads get StdEng as their engine, lest it allocate with theirs. Outputs that
// the CPU can touch are passed on as they are.
func (c *call) twin(t tensor.Tensor, out bool) (tensor.Tensor, error) {
	d, ok := t.(*tensor.Dense)
	switch {
	case !ok && t != nil && t.IsNativelyAccessible():
		return t, nil // sparse
	case d == nil:
		return nil, engineError(c.op, fmt.Errorf("operand of type %T: %w", t, ErrNotSupported))
	case isFreed(d):
		return nil, engineError(c.op, fmt.Errorf("tensor of shape %v: %w", d.Shape(), ErrUseAfterFree))
	}
	if d.IsNativelyAccessible() {
		if o := EngineOf(d); o != nil && o != c.e {
			if err := o.hostReady(); err != nil {
				return nil, err
			}
		}
		h := d
		if !out {
			h = relabel(d)
		}
		c.operands = append(c.operands, operand{orig: d, host: h, out: out})
		return h, nil
	}
	for i := range c.operands {
		if o := &c.operands[i]; o.orig == d && o.copied {
			o.out = o.out || out
			return o.host, nil
		}
	}
	h, err := c.e.stage(d)
	if err != nil {
		return nil, err
	}
	if !c.copied {
		c.e.fallbacks.count(c.op)
		c.copied = true
	}
	c.operands = append(c.operands, operand{orig: d, host: h, copied: true, out: out})
	return h, nil
}

// relabel returns a tensor of StdEng over d's memory.
func relabel(d *tensor.Dense) *tensor.Dense {
	if d.IsMaterializable() {
		p, n := extent(d)
		flat := tensor.NewDense(d.Dtype(), tensor.Shape{int(n) / int(d.Dtype().Size())}, tensor.FromMemory(uintptr(p), uintptr(n)))
		return layOut(flat, d)
	}
	h := d.ShallowClone()
	setEngine(h, std)
	return h
}

// stage returns a tensor of StdEng with a copy of d's memory in Go's heap,
// gaps of views included.
func (e *Engine) stage(d *tensor.Dense) (*tensor.Dense, error) {
	if isFreed(d) {
		return nil, engineError("read", fmt.Errorf("tensor of shape %v: %w", d.Shape(), ErrUseAfterFree))
	}
	size := int(d.Dtype().Size())
	flat := tensor.NewDense(d.Dtype(), tensor.Shape{int(d.MemSize()) / size})
	if d.MemSize() > 0 {
		p, n := extent(flat)
		if err := e.ownerOf(d).read(cpuBytes(p, n), Ptr(d.Uintptr())); err != nil {
			return nil, err
		}
		if !d.IsNativelyAccessible() {
			e.fallbacks.bytes.Add(n)
		}
	}
	return layOut(flat, d), nil
}

// ownerOf returns the engine that knows how to get at t's memory.
func (e *Engine) ownerOf(t tensor.Tensor) *Engine {
	if o := EngineOf(t); o != nil {
		return o
	}
	return e
}

// layOut returns a tensor with flat's memory and engine and d's shape,
// strides, pending transposition and mask.
func layOut(flat, d *tensor.Dense) *tensor.Dense {
	h := flat
	if d.IsMaterializable() {
		// Only a clone of d brings along a transposition that was marked but
		// not done, and only Clone does not share its slices, which tensor
		// recycles. It is made without memory, as it would copy that.
		h = d.ShallowClone()
		setMemory(h, 0, 0)
		setEngine(h, std)
		h = h.Clone().(*tensor.Dense)
		// Slicing is the one way to take d's flags off.
		if _, err := flat.SliceInto(h); err != nil {
			panic(err) // all of a vector can always be sliced
		}
	}
	*h.Info() = d.Info().Clone()
	h.SetMask(d.Mask())
	return h
}

// writeBack brings the originals up to date with the twins that have copies.
func (c *call) writeBack() error {
	for _, o := range c.operands {
		if !o.copied || !o.out {
			continue
		}
		if p, n := extent(o.host); n > 0 {
			if err := c.e.ownerOf(o.orig).write(Ptr(o.orig.Uintptr()), cpuBytes(p, n)); err != nil {
				return err
			}
			c.e.fallbacks.bytes.Add(n)
		}
		if !o.host.Shape().Eq(o.orig.Shape()) || o.host.DataOrder() != o.orig.DataOrder() {
			o.orig.UT()
			*o.orig.Info() = o.host.Info().Clone()
		}
		o.orig.SetMask(o.host.Mask())
	}
	return nil
}

// result returns r as the caller is to see it.
func (c *call) result(r tensor.Tensor) (tensor.Tensor, error) {
	d, ok := r.(*tensor.Dense)
	if !ok || d == nil {
		return r, nil
	}
	for _, o := range c.operands {
		if o.host == d {
			return o.orig, nil
		}
	}
	if d.IsView() && c.e.Owns(d) { // of an operand
		setEngine(d, c.e)
		return d, nil
	}
	return c.e.adopt(d)
}

// funcOpts are the options of an operation.
type funcOpts struct {
	reuse, incr  tensor.Tensor
	unsafe, same bool
}

func parseOpts(opts []tensor.FuncOpt) funcOpts {
	if len(opts) == 0 {
		return funcOpts{}
	}
	o := tensor.ParseFuncOpts(opts...)
	return funcOpts{reuse: o.Reuse(), incr: o.Incr(), unsafe: !o.Safe(), same: o.Same()}
}

// fresh reports whether the result is to be a new tensor.
func (o *funcOpts) fresh() bool { return o.reuse == nil && o.incr == nil && !o.unsafe }

// fallbacks counts operations that were computed on copies.
type fallbacks struct {
	total, bytes atomic.Int64
	mu           sync.Mutex
	byOp         map[string]int64
}

func (f *fallbacks) count(op string) {
	f.total.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byOp == nil {
		f.byOp = make(map[string]int64)
	}
	f.byOp[op]++
}

// EngineStats say how much an Engine computed in the host's stead.
type EngineStats struct {
	Fallbacks int64            // operations on memory that the CPU cannot touch, computed on copies of it
	ByOp      map[string]int64 // those, by the operation's name
	Bytes     int64            // copied for them, and by ToHost and FromHost
}

// Stats returns the engine's counts. All are zero over a device whose memory
// is host accessible.
func (e *Engine) Stats() EngineStats {
	e.fallbacks.mu.Lock()
	defer e.fallbacks.mu.Unlock()
	return EngineStats{Fallbacks: e.fallbacks.total.Load(), ByOp: maps.Clone(e.fallbacks.byOp), Bytes: e.fallbacks.bytes.Load()}
}
