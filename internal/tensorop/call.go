package tensorop

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// On the CPU, operations are computed by tensor.StdEng in one of two ways.
//
// Directly, where all operands are contiguous: the result's memory is taken from
// the pool first, not zeroed, and StdEng is told to reuse it (Ops.into).
//
// Through a call, in all other cases: StdEng gets host twins of the operands,
// tensors of its own with the operands' elements, so that whatever it allocates
// on the way comes from Go's heap and goes with it. A twin shares the memory
// of its original where the CPU can touch that and it is in row-major order, else
// it has a copy in that order, which is copied back afterwards if the operation
// writes to it: of other orders StdEng computes wrong numbers in many places. The
// result is moved to the pool.

// call is one operation on host twins.
type call struct {
	ops       *Ops
	op        string
	operands  []twin
	byStrides bool // the operation takes tensors as they are laid out
	counted   bool // as one on copies
}

// twin is a tensor that an operation was called with, and its host twin.
type twin struct {
	orig, host *tensor.Dense
	copied     bool // host has a copy of orig's data
	out        bool // the operation writes to it
}

// hostFunc computes on host twins.
type hostFunc func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error)

// run calls f with the twins of ts, and opts that name twins too. It returns
// f's result in the pool, or the original where the result is a twin.
func (ops *Ops) run(op string, f hostFunc, opts []tensor.FuncOpt, ts ...tensor.Tensor) (tensor.Tensor, error) {
	c := call{ops: ops, op: op}
	return c.run(f, opts, ts...)
}

func (c *call) run(f hostFunc, opts []tensor.FuncOpt, ts ...tensor.Tensor) (tensor.Tensor, error) {
	o := operand.ParseOptions(opts)
	h, err := c.twins(o.Unsafe, ts)
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
func (ops *Ops) runInto(op string, dst tensor.Tensor, f func(dst tensor.Tensor, h []tensor.Tensor) error, ts ...tensor.Tensor) error {
	c := call{ops: ops, op: op}
	return c.into(dst, f, ts...)
}

func (c *call) into(dst tensor.Tensor, f func(dst tensor.Tensor, h []tensor.Tensor) error, ts ...tensor.Tensor) error {
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

// InPlace calls f with host twins of in and out, whose data it changes, and nil
// for tensors that are nil or empty. All others are dense.
func (ops *Ops) InPlace(op string, in, out []tensor.Tensor, f func(in, out []*tensor.Dense)) error {
	c := call{ops: ops, op: op}
	if err := c.ready(); err != nil {
		return err
	}
	hin, err := c.dense(in, false)
	if err != nil {
		return err
	}
	hout, err := c.dense(out, true)
	if err != nil {
		return err
	}
	f(hin, hout)
	runtime.KeepAlive(hin) // operand.Slice has only addresses
	runtime.KeepAlive(hout)
	return c.writeBack()
}

// dense returns the twins of dense tensors, and nil for those that are nil or
// empty.
func (c *call) dense(ts []tensor.Tensor, out bool) ([]*tensor.Dense, error) {
	ds := make([]*tensor.Dense, len(ts))
	for i, t := range ts {
		if operand.IsNil(t) || t.MemSize() == 0 {
			continue
		}
		h, err := c.twin(t, out)
		if err != nil {
			return nil, err
		}
		ds[i] = h.(*tensor.Dense)
	}
	return ds, nil
}

// ready waits until the CPU may touch the engine's memory. It fails as made does.
func (c *call) ready(ts ...tensor.Tensor) error {
	if err := c.ops.made(c.op, ts...); err != nil {
		return err
	}
	if err := c.ops.m.Pending(); err != nil {
		return err
	}
	return c.ops.m.Ready()
}

// runValue is run for an operation that returns no tensor.
func runValue[T any](ops *Ops, op string, f func(h []tensor.Tensor) (T, error), ts ...tensor.Tensor) (T, error) {
	defer operand.KeepAlive(ts...)
	c := call{ops: ops, op: op}
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
	if err := c.ready(ts...); err != nil {
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
func (c *call) outputs(o operand.Options, opts []tensor.FuncOpt) ([]tensor.FuncOpt, error) {
	opts = opts[:len(opts):len(opts)]
	if o.Reuse != nil {
		h, err := c.twin(o.Reuse, true)
		if err != nil {
			return nil, err
		}
		opts = append(opts, tensor.WithReuse(h))
	}
	if o.Incr != nil {
		h, err := c.twin(o.Incr, true)
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
		return nil, c.ops.m.Error(c.op, fmt.Errorf("operand of type %T: %w", t, device.ErrNotSupported))
	}
	if err := c.ops.m.Check(d); err != nil {
		return nil, c.ops.m.Error(c.op, fmt.Errorf("tensor of shape %v: %w", d.Shape(), err))
	}
	if d.IsNativelyAccessible() && !c.rearranges(d) {
		if o := c.ops.m.Owner(d); o != c.ops.m {
			if err := o.Ready(); err != nil {
				return nil, err
			}
		}
		h := d
		if !out {
			h = operand.Relabel(d)
		}
		c.operands = append(c.operands, twin{orig: d, host: h, out: out})
		return h, nil
	}
	for i := range c.operands {
		if o := &c.operands[i]; o.orig == d && o.copied {
			o.out = o.out || out
			return o.host, nil
		}
	}
	h, err := c.ops.stage(d)
	if err != nil {
		return nil, err
	}
	if c.rearranges(d) {
		h = rowMajor(h)
	}
	if !c.counted && !d.IsNativelyAccessible() {
		c.ops.counts.fallback(c.op)
		c.counted = true
	}
	c.operands = append(c.operands, twin{orig: d, host: h, copied: true, out: out})
	return h, nil
}

// rearranges reports whether the twin of d is in another order.
func (c *call) rearranges(d *tensor.Dense) bool {
	return !c.byStrides && !operand.IsRowMajor(d)
}

// writeBack brings the originals up to date with the twins that have copies.
func (c *call) writeBack() error {
	for _, o := range c.operands {
		if !o.copied || !o.out {
			continue
		}
		same := slices.Equal(o.host.Shape(), o.orig.Shape()) // Eq takes (3) for (1, 3)
		if c.rearranges(o.orig) && (same || o.host.MemSize() != o.orig.MemSize()) {
			if err := c.ops.Copy(o.orig, o.host); err != nil {
				return err
			}
			continue
		}
		if p, n := operand.Extent(o.host); n > 0 {
			if err := c.ops.m.Owner(o.orig).Write(device.Ptr(o.orig.Uintptr()), operand.Bytes(p, n)); err != nil {
				return err
			}
			c.ops.counts.bytes.Add(n)
		}
		if !same || o.host.DataOrder() != o.orig.DataOrder() {
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
	if d.IsMaterializable() || !operand.InOrder(d) {
		d = rowMajor(d) // StdEng clones views with their gaps, and misreads those
	}
	d, err := c.ops.m.Adopt(d)
	return unless(err, d)
}

// counts count operations that were computed on copies.
type counts struct {
	total, bytes atomic.Int64
	mu           sync.Mutex
	byOp         map[string]int64
}

func (c *counts) fallback(op string) {
	c.total.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byOp == nil {
		c.byOp = make(map[string]int64)
	}
	c.byOp[op]++
}

// Counts returns how many operations on memory that the CPU cannot touch were
// computed on copies of it, how many of each name, and how many bytes were
// copied for them and by ToHost, Staged and Copied.
func (ops *Ops) Counts() (fallbacks int64, byOp map[string]int64, bytes int64) {
	c := &ops.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total.Load(), maps.Clone(c.byOp), c.bytes.Load()
}

// Fallbacks returns the first result of Counts.
func (ops *Ops) Fallbacks() int64 { return ops.counts.total.Load() }

// Copied adds to the bytes of Counts.
func (ops *Ops) Copied(n int64) { ops.counts.bytes.Add(n) }
