package gorgoniavm

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/nn"
)

// norm is what a VM has in the memory of its device for a normalization, until
// Close. It stays in the same place, for Replay.
type norm struct {
	batch *gorgonia.BatchNormOp // nil: a group norm
	dt    tensor.Dtype
	size  int // channels, or groups of all samples
	stats nn.BatchStats
	holds []held // of the statistics; nil: they are not made yet
}

// keyOf returns the operation that an operation or its gradient shares its
// statistics with; nil: it has none.
func keyOf(in *program.Instr) any {
	switch in.Name {
	case "*gorgonia.BatchNormOp", "*gorgonia.GroupNormOp":
		return in.Op
	case "*gorgonia.batchnormDiffOp":
		return program.Field(in.Op, "BatchNormOp").Interface()
	case "*gorgonia.groupNormDiffOp":
		return program.Field(in.Op, "GroupNormOp").Interface()
	}
	return nil
}

// normsOf returns the normalizations of a program, by their keys.
func normsOf(p *program.Program) map[any]*norm {
	norms := make(map[any]*norm)
	for i := range p.Instrs {
		in := &p.Instrs[i]
		key := keyOf(in)
		if key == nil || norms[key] != nil {
			continue
		}
		n := &norm{dt: in.Dtype}
		if op, ok := key.(*gorgonia.BatchNormOp); ok {
			mean, _ := op.Stats()
			if d, ok := mean.(*tensor.Dense); !ok || d == nil {
				continue // gorgonia.BatchNorm did not make it
			}
			n.batch, n.size = op, mean.Shape().TotalSize()
			n.stats.Momentum, n.stats.Epsilon = program.Field(op, "momentum").Float(), program.Field(op, "epsilon").Float()
		} else {
			n.size = in.Shape[0] * int(program.Field(key.(gorgonia.Op), "numGroups").Int())
			n.stats.Epsilon = program.Field(key.(gorgonia.Op), "epsilon").Float()
		}
		norms[key] = n
	}
	return norms
}

// prepareNorms makes the statistics on the device, and moves running ones there
// that are elsewhere.
func (m *VM) prepareNorms() error {
	if m.e.AllocAccessible() {
		return nil
	}
	for _, n := range m.norms {
		err := n.make(m)
		if err == nil {
			err = n.take(m)
		}
		if err != nil {
			return fmt.Errorf("the statistics of a normalization: %w", err)
		}
	}
	return nil
}

// make makes the statistics.
func (n *norm) make(m *VM) error {
	if n.holds != nil {
		return nil
	}
	places := []*tensor.Tensor{&n.stats.Mean, &n.stats.Inverse}
	if n.batch != nil {
		places = append(places, &n.stats.RunningMean, &n.stats.RunningVariance)
	}
	like := tensor.New(tensor.Of(n.dt), tensor.WithShape(n.size))
	for _, p := range places {
		t, err := m.mem.lasting(like, func(t *tensor.Dense) error { return m.e.Zero(t) })
		if err != nil {
			n.drop(m)
			return err
		}
		*p = t
		n.holds = append(n.holds, m.mem.hold(t, false))
	}
	return nil
}

// drop gives the statistics back.
func (n *norm) drop(m *VM) {
	for i := range n.holds {
		m.mem.drop(&n.holds[i])
	}
	n.holds = nil
}

// normOwners says which VM has the newest running statistics of an operation,
// which several VMs may share: a *VM by *gorgonia.BatchNormOp. The operation's own
// tensors have the marks then. Where they have not, they are the newest.
var normOwners sync.Map

// take moves running statistics to the VM's device, from the operation or from
// another VM.
func (n *norm) take(m *VM) error {
	if n.batch == nil {
		return nil
	}
	if owner, ok := normOwners.Load(n.batch); ok && isTaken(n.batch) {
		if owner == m {
			return nil
		}
		if err := owner.(*VM).norms[n.batch].leave(owner.(*VM)); err != nil {
			return err
		}
	}
	mean, variance := n.batch.Stats()
	for to, from := range map[tensor.Tensor]tensor.Tensor{n.stats.RunningMean: mean, n.stats.RunningVariance: variance} {
		if err := m.e.Copy(to, from); err != nil {
			return err
		}
	}
	normOwners.Store(n.batch, m)
	mark(mean, variance)
	return nil
}

// leave gives the operation its running statistics back, if the VM has newer ones.
func (n *norm) leave(m *VM) error {
	if n.batch == nil {
		return nil
	}
	if owner, ok := normOwners.Load(n.batch); !ok || owner != m {
		return nil
	}
	if isTaken(n.batch) {
		mean, err := m.e.ToHost(n.stats.RunningMean)
		if err != nil {
			return err
		}
		variance, err := m.e.ToHost(n.stats.RunningVariance)
		if err != nil {
			return err
		}
		if err := n.batch.SetStats(mean, variance); err != nil {
			return err
		}
	}
	normOwners.Delete(n.batch)
	return nil
}

// SyncStats gives the graph's batch norms the running statistics that they have on
// the device, so that BatchNormOp.Stats returns them. It waits for the device.
//
// From a RunAll on the running statistics are on a device whose memory the CPU
// cannot touch, and BatchNormOp.Stats returns NaN until SyncStats or Close.
// SetStats, Reset and SetTraining work at any time between runs: the next RunAll
// computes with what they set. VMs that share an operation hand it over when they
// run; they must not run at once.
func (m *VM) SyncStats() error {
	if err := m.check(); err != nil {
		return err
	}
	var errs []error
	for _, n := range m.norms {
		errs = append(errs, n.leave(m))
	}
	return errors.Join(errs...)
}

// closeNorms is SyncStats that gives the memory back.
func (m *VM) closeNorms() error {
	err := m.SyncStats()
	for _, n := range m.norms {
		if n.batch != nil {
			normOwners.CompareAndDelete(n.batch, m)
		}
		n.drop(m)
	}
	m.norms = nil
	return err
}

// The running statistics of an operation are marked while a VM has newer ones. A
// mark is a NaN that no computation makes, so that the program's writing to the
// statistics is seen, and a reading of them is not taken for numbers.

const (
	mark32 = 0x7fc0c0de
	mark64 = 0x7ff80000c0dec0de
)

// mark marks statistics.
func mark(ts ...tensor.Tensor) {
	for _, t := range ts {
		switch xs := t.Data().(type) {
		case []float32:
			for i := range xs {
				xs[i] = math.Float32frombits(mark32)
			}
		case []float64:
			for i := range xs {
				xs[i] = math.Float64frombits(mark64)
			}
		}
	}
}

// isTaken reports whether an operation's running statistics are all marked.
func isTaken(op *gorgonia.BatchNormOp) bool {
	mean, variance := op.Stats()
	return isMarked(mean) && isMarked(variance)
}

func isMarked(t tensor.Tensor) bool {
	switch xs := t.Data().(type) {
	case []float32:
		return len(xs) > 0 && math.Float32bits(xs[0]) == mark32
	case []float64:
		return len(xs) > 0 && math.Float64bits(xs[0]) == mark64
	}
	return false
}
