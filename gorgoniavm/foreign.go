package gorgoniavm

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

// foreign lets gorgonia compute an operation on the CPU, on its own engine: on
// the memory itself where the CPU can touch it, or on copies. All that gorgonia
// allocates for it lies in Go's heap. The result is moved to the pool.
func foreign(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	if m.recording != nil {
		return nil, fmt.Errorf("gorgonia computes it by itself, in Go: %w", cupool.ErrNotSupported)
	}
	m.fellBack(in)
	host := make([]gorgonia.Value, len(args))
	for i, v := range args {
		h, err := m.foreignArg(v)
		if err != nil {
			return nil, err
		}
		host[i] = h
	}
	r, err := m.doForeign(in, host)
	if err != nil {
		return nil, err
	}
	d, ok := r.(*tensor.Dense)
	switch {
	case !ok:
		return r, nil
	case in.Scalar:
		return toScalar(d.Get(0))
	case m.e.Owns(d): // an operand, or the destination
		d = d.ShallowClone()
		tensor.WithEngine(m.engineOf(d, args))(d)
		return d, nil
	}
	return m.e.FromHost(d)
}

// engineOf returns the engine of a tensor's memory, which with lifetimes is the owner of
// that where it is an operand's.
func (m *VM) engineOf(d *tensor.Dense, args []gorgonia.Value) tensor.Engine {
	for _, v := range args {
		if x, ok := v.(*tensor.Dense); ok && d.Uintptr()-x.Uintptr() < x.MemSize() {
			return x.Engine()
		}
	}
	return m.e
}

// foreignArg returns an operand as gorgonia sees it.
func (m *VM) foreignArg(v gorgonia.Value) (gorgonia.Value, error) {
	d, ok := v.(*tensor.Dense)
	if !ok {
		return v, nil
	}
	if !m.e.AllocAccessible() {
		d, err := m.e.ToHost(d)
		if err != nil {
			return nil, err
		}
		tensor.WithEngine(gorgonia.StandardEngine{})(d)
		return d, nil
	}
	if _, err := m.e.Accessible(d); err != nil {
		return nil, err
	}
	clone := d.ShallowClone()
	tensor.WithEngine(gorgonia.StandardEngine{})(clone)
	return clone, nil
}

// How gorgonia's operations treat a destination that they are given.
type destination int

const (
	noDestination destination = iota
	overwrites                // its elements do not matter
	adds                      // they have to be zero
	transforms                // they have to be the first operand's
)

// destinations are the operations that get a destination, where the CPU can
// touch the pool. The others allocate by themselves.
var destinations = map[string]destination{
	"gorgonia.im2colOp":         overwrites,
	"gorgonia.col2imOp":         overwrites,
	"*gorgonia.maxPoolOp":       overwrites,
	"*gorgonia.maxPoolDiffOp":   overwrites,
	"*gorgonia.avgPoolOp":       adds,
	"*gorgonia.avgPoolDiffOp":   adds,
	"*gorgonia.dropoutDiffOp":   overwrites,
	"*gorgonia.BatchNormOp":     transforms,
	"*gorgonia.batchnormDiffOp": transforms,
}

// destinationOf says whether in gets a destination. Operations that are not
// gorgonia's get one where the tape machine would give it to them.
func (m *VM) destinationOf(in *program.Instr) destination {
	if _, ok := in.Op.(gorgonia.UsePreallocDoer); !ok || in.Scalar || !m.e.AllocAccessible() {
		return noDestination
	}
	if in.Op.CallsExtern() && in.Op.ReturnsPtr() {
		return adds
	}
	return destinations[in.Name]
}

// doForeign calls the operation.
func (m *VM) doForeign(in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	kind := m.destinationOf(in)
	if kind == noDestination {
		return in.Op.Do(args...)
	}
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	switch kind {
	case adds:
		err = m.e.Zero(dst)
	case transforms:
		err = m.e.Copy(dst, args[0].(*tensor.Dense))
	}
	if err != nil {
		return nil, err
	}
	h, err := m.foreignArg(dst)
	if err != nil {
		return nil, err
	}
	return in.Op.(gorgonia.UsePreallocDoer).UsePreallocDo(h, args...)
}
