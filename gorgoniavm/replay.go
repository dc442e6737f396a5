package gorgoniavm

import (
	"errors"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

// Replay has RunAll record a run as CUDA graphs (cupool.Engine.Capture), one up
// to the last scalar that is read off the device and one for the rest, and
// launch those from then on, in place of the operations one by one. The numbers
// are the same. The first RunAll does not record, the second one does.
//
// A recording reads inputs where they lie as long as they are the same tensors
// in every run; one that was bound to another (gorgonia.Let) is copied to the
// recording's own memory before each launch, as are inputs in Go's heap. Values
// that last and gradients are the same tensors from run to run. Operations that
// depend on scalars of the device are computed after the launch. A recording
// has the memory that it works in until Close; Reset leaves it.
//
// The VM records again when the recording does not fit the run: an input that
// was read in place is another tensor, or a scalar among the inputs, a slice
// (gorgonia.UnsafeLet), a bound gradient or the mode (EvalMode) has changed. After three recordings
// that failed or were hardly used, it computes operation by operation.
//
// It cannot record on a device without graphs, on the default stream, where
// gorgonia computes an operation by itself (Fallbacks), where a tensor depends
// on a scalar of the device, with an input that has a mask, with a gorgonia.Read
// of a tensor, with WithLogger, WatchNaN or WatchInf, and when memory does not
// suffice. VM.Replays says how runs went.
//
// While a run is recorded, nothing else may use the engine. A run that fails
// after the launch may have added to gradients.
func Replay() Option {
	return func(c *config) { c.replay = true }
}

// ReplayStats say how a VM with Replay ran. The zero value is one without.
type ReplayStats struct {
	Recordings int64 // runs recorded as CUDA graphs
	Launches   int64 // runs by launching one; the others were computed operation by operation
	Err        error // of the last recording that failed, an *OpError where an operation did; nil: none has
}

// Replays returns how many runs were launched as CUDA graphs, and why others
// were not.
func (m *VM) Replays() (s ReplayStats) {
	if m != nil {
		s = m.replay.stats
	}
	return s
}

// replays are a VM's recordings and how they served.
type replays struct {
	on     bool       // runs are to be recorded
	ran    bool       // a run was computed without: kernels are loaded, inputs known
	rec    *recording // nil: none
	wasted int        // recordings that failed or were hardly used
	stats  ReplayStats
}

const (
	mostWasted = 3  // recordings that are worth trying
	fewRuns    = 10 // launches of a recording that was hardly used
)

// replayed runs the program as a CUDA graph; false: it has to be walked.
func (m *VM) replayed() (bool, error) {
	r := &m.replay
	if !r.on {
		return false, nil
	}
	if r.rec != nil && !r.rec.fits(m) {
		if err := m.dropRecording(); err != nil {
			return false, err
		}
	}
	if r.rec == nil && r.wasted < mostWasted && r.ran {
		m.record()
	}
	if r.rec == nil {
		return false, nil
	}
	return true, m.launch(r.rec)
}

// record makes a recording, if it can.
func (m *VM) record() {
	r := &m.replay
	rec, err := m.capture()
	switch {
	case err == nil:
		r.rec = rec
		r.stats.Recordings++
		return
	case errors.Is(err, cupool.ErrNotSupported):
		r.wasted = mostWasted
	default:
		r.wasted++
	}
	r.stats.Err = err
}

// fits reports whether a launch would read the values that nodes have.
func (r *recording) fits(m *VM) bool {
	for i := range r.inputs {
		if !r.inputs[i].fits(m, r.inputs[i].node.Value()) {
			return false
		}
	}
	for i := range r.grads {
		if !r.grads[i].fits(m, boundGradient(r.grads[i].node)) {
			return false
		}
	}
	for _, n := range r.numbers {
		if x, ok := numberOf(n.node.Value()); !ok || x != n.x {
			return false
		}
	}
	for _, c := range r.cuts {
		if program.CutOf(c.of) != c.at {
			return false
		}
	}
	return !slices.ContainsFunc(r.modes, func(mode recordedMode) bool { return mode.now() != mode.was })
}

func (in *recordedInput) fits(m *VM, now gorgonia.Value) bool {
	d, ok := now.(*tensor.Dense)
	switch {
	case !ok || d.MemSize() == 0 || d.IsMasked():
		return false
	case in.stage != nil:
		return d.Dtype() == in.stage.Dtype() && d.Shape().Eq(in.stage.Shape())
	}
	return in.v == now && in.at == cupool.Ptr(d.Uintptr()) && d.Shape().Eq(in.shape) && m.inPlace(in.node, d)
}

// launch runs a recording and the operations that come last.
func (m *VM) launch(rec *recording) error {
	if err := rec.feed(m); err != nil {
		return err
	}
	if err := rec.run(m.e); err != nil {
		return err
	}
	rec.launches++
	m.replay.stats.Launches++
	if err := rec.restore(m); err != nil {
		return err
	}
	if err := m.walk(m.prog.Instrs[m.prog.Late:]); err != nil {
		return err
	}
	return m.commit(unrecorded)
}

// restore puts the values of a launch where walk puts those of a run.
func (r *recording) restore(m *VM) error {
	copy(m.now.slots, r.slots)
	m.kept = append(m.kept, r.scalars...)
	m.now.lets = append(m.now.lets, r.lets...)
	for _, b := range r.bound {
		if b.node.Value() == b.h.v {
			continue
		}
		if err := gorgonia.UnsafeLet(b.node, b.h.v); err != nil {
			return &OpError{Node: nameOf(b.node), Op: program.OpName(b.node.Op()), Err: err}
		}
		m.lendDerivative(b.node, b.h.v)
	}
	return nil
}

// dropRecording gives the recording back, and takes its values from their nodes.
// It fails if an input has one of the values and the device cannot be read.
func (m *VM) dropRecording() error {
	rec := m.replay.rec
	if rec == nil {
		return nil
	}
	moved := m.moveFromRecording(rec)
	m.replay.rec = nil
	if rec.launches < fewRuns {
		m.replay.wasted++
	}
	rec.unbind()
	if err := rec.close(); m.mem.blocks.Err == nil {
		m.mem.blocks.Err = err
	}
	return moved
}

// closeRecording gives the recording back. Its nodes keep their values as copies
// in Go's heap.
func (m *VM) closeRecording(l *leaving) error {
	rec := m.replay.rec
	if rec == nil {
		return nil
	}
	m.replay.rec = nil
	moved := m.moveFromRecording(rec)
	for _, b := range rec.bound {
		l.value(b.node, b.h)
	}
	return errors.Join(moved, rec.close())
}
