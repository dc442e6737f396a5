package gorgoniavm

import (
	"errors"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

// recording is a run as CUDA graphs: all instructions but those that come last,
// and the additions to gradients that are tensors. Its values lie in the graphs'
// memory, in the same place in every run, so its references are not counted.
type recording struct {
	graphs   []*cupool.Graph // one after the other; scalars are fetched behind the first
	launches int

	// The values that it was made with.
	inputs  []recordedInput
	numbers []recordedNumber
	cuts    []recordedCut
	grads   []recordedInput // bound gradients
	modes   []recordedMode

	// The values that it leaves.
	slots   []held
	scalars []binding // kept scalars, which are read after each launch
	bound   []binding // kept tensors, which their nodes have
	lets    []binding
	fetches []held // scalars on their way to the host
}

// recordedInput is a tensor that a graph reads or adds to.
type recordedInput struct {
	node  *gorgonia.Node
	v     gorgonia.Value // the node's value, where the graph uses it in place
	at    cupool.Ptr     // its address
	shape tensor.Shape
	stage *tensor.Dense // else, where it is copied to before a launch
}

// recordedNumber is a scalar that a graph was made with.
type recordedNumber struct {
	node *gorgonia.Node
	x    any
}

// recordedCut is a slice that a graph was made with.
type recordedCut struct {
	of sliceOp
	at program.Cut
}

// recordedMode is the mode of a batch norm that a graph was made in.
type recordedMode struct {
	of       *gorgonia.BatchNormOp
	training bool
}

type sliceOp interface{ IsSlice() tensor.Slice }

func recordedInPlace(n *gorgonia.Node, d *tensor.Dense) recordedInput {
	return recordedInput{node: n, v: d, at: cupool.Ptr(d.Uintptr()), shape: d.Shape().Clone()}
}

// use notes that an input is read in place.
func (r *recording) use(n *gorgonia.Node, d *tensor.Dense) {
	r.inputs = append(r.inputs, recordedInPlace(n, d))
}

// stage notes that an input is copied to the graph's memory.
func (r *recording) stage(n *gorgonia.Node, to *tensor.Dense) {
	r.inputs = append(r.inputs, recordedInput{node: n, stage: to.ShallowClone()})
}

// feed copies the inputs that are not used in place to the graph's memory.
func (r *recording) feed(e *cupool.Engine) error {
	for _, in := range r.inputs {
		if in.stage == nil {
			continue
		}
		if err := e.Copy(in.stage, in.node.Value().(*tensor.Dense)); err != nil {
			return &OpError{Node: nameOf(in.node), Op: "input", Err: err}
		}
	}
	return nil
}

// run launches the graphs.
func (r *recording) run(e *cupool.Engine) error {
	for i, g := range r.graphs {
		if err := g.Launch(); err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		for _, h := range r.fetches {
			if err := h.fetch.begin(e.Stream(), h.v.(*tensor.Dense)); err != nil {
				return err
			}
		}
	}
	return nil
}

// close gives the graphs back.
func (r *recording) close() error {
	var errs []error
	for _, g := range r.graphs {
		errs = append(errs, g.Close())
	}
	return errors.Join(errs...)
}

// unbind disarms the recording's values that nodes still have.
func (r *recording) unbind() {
	for _, b := range r.bound {
		if b.node.Value() == b.h.v {
			forget(b.h.v)
		}
	}
}

// uncounted returns a value without a reference to its block.
func (h held) uncounted() held { return held{v: h.v, fetch: h.fetch} }
