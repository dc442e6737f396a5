package main

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/cupool/cupool/examples/internal/training"
)

// options are what the command line asks for.
type options struct {
	training.Options
	plan     bool
	prefetch bool

	graph      bool
	graphSteps int  // the most that a graph has
	graphFork  bool // see learnForked
}

// parse reads the command line. It returns flag.ErrHelp after it has printed
// the help that was asked for to out.
func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("mlp", flag.ContinueOnError)
	o.Register(fs)
	fs.BoolVar(&o.plan, "plan", false, "serve the steps by a plan of their memory, which is made from the first ones")
	fs.BoolVar(&o.graph, "graph", false, "run the steps as CUDA graphs, captured once; with -shift 0 only")
	fs.IntVar(&o.graphSteps, "graph-steps", usualGraphSteps, "with -graph: at most so many `steps` in a graph")
	fs.BoolVar(&o.graphFork, "graph-fork", true, "with -graph: gradients and updates of parameters run beside what does not need them")
	fs.BoolVar(&o.prefetch, "prefetch", false, "make the next batch on another stream while the device computes; not with -shift 0")
	err := training.Parse(fs, "Mlp trains a multi-layer perceptron on MNIST, every tensor in a cupool.", args, out)
	if err != nil {
		return nil, err
	}
	return o, o.complete()
}

// complete checks the values and fills in what depends on others.
func (o *options) complete() error {
	if err := o.Complete(); err != nil {
		return err
	}
	switch {
	case o.graph && (o.Shift != 0 || o.plan):
		return errors.New("-graph needs -shift 0, and goes without -plan")
	case o.graphSteps < 1:
		return fmt.Errorf("-graph-steps %d: a graph has a step at least", o.graphSteps)
	case o.prefetch && (o.Shift == 0 || o.plan):
		return errors.New("-prefetch is for batches made on the host, not with -shift 0, and goes without -plan")
	}
	return nil
}
