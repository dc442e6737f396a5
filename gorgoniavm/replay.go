package gorgoniavm

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cupool/cupool"
)

// What takes the time of a small graph on a GPU is to start its operations.
// With Replay, a VM does that once, into CUDA graphs (recording.go), and then
// starts these.

// Replay has RunAll record a run as CUDA graphs (cupool.Engine.Capture), one up
// to the last scalar that is read off the device and one for the rest, and
// launch those from then on, in place of the operations one by one. The numbers
// are the same. The first RunAll computes as ever, the second one records.
//
// A recording reads inputs where they lie as long as they are the same tensors
// in every run; one that was bound to another (gorgonia.Let) is copied to the
// recording's own memory before each launch, as are inputs in Go's heap. Values
// that last and gradients are the same tensors from run to run. What depends on
// scalars that were read off the device comes after the launch. A recording has
// the memory that it works in until Close; Reset leaves it.
//
// The VM records anew when an input that lay in place is another tensor, when a
// scalar among the inputs, a slice (gorgonia.UnsafeLet) or a bound gradient is
// another one, and runs as ever where that happens all the time. So it does
// where it cannot record: on a device without graphs or an engine on the
// default stream, where gorgonia computes an operation by itself (Fallbacks) or
// a tensor depends on a scalar of the device, with a gorgonia.Read of a
// tensor, with WithLogger, WatchNaN and WatchInf, and when memory does not
// suffice. VM.Replays tells.
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
func (m *VM) Replays() ReplayStats { return m.replay.stats }

// replays is what a VM knows of its recordings.
type replays struct {
	on     bool       // runs are to be recorded
	ran    bool       // one went as ever: kernels are loaded, inputs known
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
		m.dropRecording()
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

// capture records a run. Memory that the run takes is the graphs', and none of
// it is given back here, whichever way it goes.
func (m *VM) capture() (*recording, error) {
	if err := m.recordable(); err != nil {
		return nil, err
	}
	rec, blocks := new(recording), m.blocks
	m.recording, m.blocks.refs = rec, maps.Clone(blocks.refs)
	defer func() {
		m.blocks, m.recording, m.at, m.dst = blocks, nil, nil, held{}
		clear(m.slots)
		clear(m.headers) // which the recording has now
		m.kept, m.lets = m.kept[:0], m.lets[:0]
	}()
	if err := m.recordRun(rec); err != nil {
		return nil, errors.Join(err, rec.close())
	}
	return rec, nil
}

// recordable fails for what a graph would leave out.
func (m *VM) recordable() error {
	if m.c.log != nil || m.c.watchNaN || m.c.watchInf {
		return fmt.Errorf("gorgoniavm: a graph neither logs nor watches: %w", cupool.ErrNotSupported)
	}
	for _, n := range m.prog.targets {
		if boundGradient(n) == nil {
			return fmt.Errorf("gorgoniavm: %s has no gradient to add to: %w", nameOf(n), ErrNoValue)
		}
	}
	return nil
}

// recordRun records what graphs are to compute, and notes what is to be done
// besides. What comes after the scalars that are fetched is a graph of its own,
// which may use the memory of the first one, but not free it.
func (m *VM) recordRun(rec *recording) error {
	instrs := inputsFirst(m.prog.instrs[:m.prog.late])
	if n := m.fetches.after(instrs); 0 < n && n < len(instrs) {
		if err := m.recordGraph(rec, func() error { return m.walk(instrs[:n]) }); err != nil {
			return err
		}
		m.blocks.borrow()
		instrs = instrs[n:]
	}
	return m.recordGraph(rec, func() error {
		if err := m.walk(instrs); err != nil {
			return err
		}
		if err := m.addGradients(recorded); err != nil {
			return err
		}
		return rec.complete(m)
	})
}

// inputsFirst returns instructions with inputs before all others. What is
// copied before a launch would be lost in memory that the launch works in
// before it comes to that input.
func inputsFirst(instrs []instr) []instr {
	sorted := slices.Clone(instrs)
	slices.SortStableFunc(sorted, func(a, b instr) int {
		switch {
		case a.kind == variable && b.kind != variable:
			return -1
		case a.kind != variable && b.kind == variable:
			return 1
		}
		return 0
	})
	return sorted
}

// recordGraph adds what f computes as a graph.
func (m *VM) recordGraph(rec *recording, f func() error) error {
	g, err := m.e.Capture(func() error {
		m.blocks.a = m.e.Allocator()
		if err := m.named(cupool.Try(f)); err != nil {
			return err
		}
		return m.blocks.err
	})
	if err == nil {
		rec.graphs = append(rec.graphs, g)
	}
	return err
}

// launch runs a recording and what comes after it.
func (m *VM) launch(rec *recording) error {
	if err := rec.feed(m.e); err != nil {
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
	if err := m.walk(m.prog.instrs[m.prog.late:]); err != nil {
		return err
	}
	return m.commit(unrecorded)
}

// dropRecording gives the recording back, and takes its values from their nodes.
func (m *VM) dropRecording() {
	rec := m.replay.rec
	if rec == nil {
		return
	}
	m.replay.rec = nil
	if rec.launches < fewRuns {
		m.replay.wasted++
	}
	rec.unbind()
	if err := rec.close(); m.blocks.err == nil {
		m.blocks.err = err
	}
}

// closeRecording gives the recording back. Its nodes keep their values as copies
// in Go's heap.
func (m *VM) closeRecording() error {
	rec := m.replay.rec
	if rec == nil {
		return nil
	}
	m.replay.rec = nil
	var errs []error
	for _, b := range rec.bound {
		errs = append(errs, m.leaveValue(b.node, b.h))
	}
	return errors.Join(append(errs, rec.close())...)
}
