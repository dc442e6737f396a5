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

	group group

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
	fs.BoolVar(&o.graphFork, "graph-fork", true, "with -graph, of one rank: gradients and updates of parameters run beside what does not need them")
	fs.BoolVar(&o.prefetch, "prefetch", false, "make the next batch on another stream while the device computes; not with -shift 0")
	fs.IntVar(&o.group.gpus, "gpus", 0, "train on so many `GPUs` of this machine, each with its part of the batch; on the host, on so many host devices")
	fs.IntVar(&o.group.nodes, "nodes", 0, "train on so many `machines`, with -gpus on each (default: 1)")
	fs.IntVar(&o.group.node, "rank", -1, "with -nodes: the `number` of this machine, from 0")
	fs.StringVar(&o.group.rendezvous, "rendezvous", "", "with -nodes: `HOST:PORT` of the machine with -rank 0, where all find each other")
	fs.StringVar(&o.group.comm, "comm", "", "what averages the gradients: nccl, or host, over memory and sockets (default: nccl for GPUs)")
	fs.Int64Var(&o.group.bucket, "bucket", 0, "average gradients in groups of so many `bytes`, while others are computed (default: 1 MiB, then 25 MiB)")
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
	if err := o.group.complete(o.Device); err != nil {
		return err
	}
	switch n := o.group.size(); {
	case o.Batch%n != 0:
		return fmt.Errorf("-batch %d cannot be split among %d ranks: make it a multiple of %d", o.Batch, n, n)
	case o.graph && !o.group.alone() && o.group.comm == "host":
		return errors.New("-graph cannot have -comm host in it, for which the CPU works: -comm nccl can")
	case o.graph && (o.Shift != 0 || o.plan):
		return errors.New("-graph needs -shift 0, and goes without -plan")
	case o.graphSteps < 1:
		return fmt.Errorf("-graph-steps %d: a graph has a step at least", o.graphSteps)
	case o.prefetch && (o.Shift == 0 || o.plan):
		return errors.New("-prefetch is for batches made on the host, not with -shift 0, and goes without -plan")
	}
	return nil
}
