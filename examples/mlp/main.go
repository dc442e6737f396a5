// Mlp trains a multi-layer perceptron on MNIST. All tensors, the weights as well
// as every temporary of every step, live in a pool of cupool:
//
//	go run ./examples/mlp                     # a subset of MNIST, built in
//	go run ./examples/mlp -data DIR -hidden 512,256 -optimizer adam
//	go run ./examples/mlp -gpus 4             # four ranks, each on a host device of its own
//	go run ./examples/mlp -device cuda -shift 0 -graph
//
// Read on in devices.go: devices, their pools and engines, and how several work
// together. train.go has the training: epochs, steps, CUDA graphs. model.go has
// the network, and data.go the way of a batch into the pool.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/examples/internal/observe"
	"github.com/cupool/cupool/examples/internal/training"
)

func main() { training.Main(run) }

// run is main with everything it depends on. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stdout)
	if err != nil {
		return training.Usage("mlp", err, stderr)
	}
	if o.share(0).rank > 0 { // the first of all ranks speaks for them
		o.Observe, stdout = observe.Options{}, io.Discard
	}
	r, err := train(ctx, o, stdout, stderr)
	return training.End("mlp", r, err, &o.Options, stdout, stderr)
}

// options are what the command line asks for.
type options struct {
	training.Options
	gpus       int           // ranks of this process; 0: one, which knows of no others
	nodes      int           // processes like this one
	node       int           // the number of this one
	rendezvous string        // where the ranks of all processes meet
	token      string        // their secret
	local      int           // the GPU of the first rank here, unless -device says which
	bucket     int64         // bytes of gradients that are averaged at once; 0: dist's usual sizes
	timeout    time.Duration // of what waits for other ranks; 0: nccl.DefaultTimeout
}

// mostRanks is the size of the largest group, as package dist has it.
const mostRanks = 1 << 16

// parse reads the command line. It returns flag.ErrHelp after it has printed
// the help that was asked for to out.
func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("mlp", flag.ContinueOnError)
	o.Register(fs)
	fs.IntVar(&o.gpus, "gpus", 0, "train on so many `GPUs` of this machine, each with its part of the batch; on the host, on so many host devices")
	fs.IntVar(&o.nodes, "nodes", 0, "train on so many `machines`, with -gpus on each (default: 1)")
	fs.IntVar(&o.node, "rank", -1, "with -nodes: the `number` of this machine, from 0")
	fs.StringVar(&o.rendezvous, "rendezvous", "", "with -nodes: `HOST:PORT` of the machine with -rank 0, where all find each other")
	fs.Int64Var(&o.bucket, "bucket", 0, "average gradients in groups of so many `bytes`, while others are computed (default: 1 MiB, then 25 MiB)")
	fs.DurationVar(&o.timeout, "timeout", 0, "on GPUs, end when other ranks let this one wait for so `long` (default: 10m)")
	if err := o.Parse(fs, "Mlp trains a multi-layer perceptron on MNIST, every tensor in a cupool.", args, out); err != nil {
		return nil, err
	}
	if err := o.askLauncher(); err != nil {
		return nil, err
	}
	switch {
	case o.gpus < 0 || o.nodes < 0 || o.bucket < 0 || o.timeout < 0:
		return nil, errors.New("-gpus, -nodes, -bucket and -timeout must not be negative")
	case o.gpus > mostRanks || o.nodes > mostRanks/max(o.gpus, 1):
		return nil, fmt.Errorf("-gpus on each of -nodes must come to at most %d ranks", mostRanks)
	case o.nodes == 0 && (o.node >= 0 || o.rendezvous != ""):
		return nil, errors.New("-rank and -rendezvous are for several machines: -nodes says how many")
	case o.nodes > 0 && (o.node < 0 || o.node >= o.nodes):
		return nil, fmt.Errorf("-nodes %d needs a -rank from 0 to %d, another one on each machine", o.nodes, o.nodes-1)
	case o.nodes > 1 && o.rendezvous == "":
		return nil, errors.New("-nodes needs -rendezvous HOST:PORT, an address of the machine with -rank 0, the same on all")
	case o.nodes > 1 && !o.onGPU():
		return nil, errors.New("several machines need -device cuda: NCCL moves what they send each other")
	case o.Graph && (!o.onGPU() || o.Shift != 0):
		return nil, errors.New("-graph needs -device cuda, and -shift 0")
	}
	if o.nodes > 0 {
		o.gpus = max(o.gpus, 1)
	}
	o.nodes, o.node = max(o.nodes, 1), max(o.node, 0)
	if n := o.share(0).size; o.Batch%n != 0 {
		return nil, fmt.Errorf("-batch %d cannot be split among %d ranks: make it a multiple of %d", o.Batch, n, n)
	}
	return o, nil
}

// askLauncher takes what torchrun, Slurm or Kubernetes tells each process, a
// process being one rank: unless flags say who is there, or nothing was told.
func (o *options) askLauncher() error {
	told, err := dist.FromEnv()
	o.token = told.Token
	if o.gpus != 0 || o.nodes != 0 || o.node >= 0 {
		return nil
	}
	if err != nil || told.Size < 2 {
		return err
	}
	o.gpus, o.nodes, o.node, o.local = 1, told.Size, told.Rank, told.LocalRank
	o.rendezvous = cmp.Or(o.rendezvous, told.Address)
	return nil
}

func (o *options) onGPU() bool { return strings.HasPrefix(o.Device, "cuda") }

// share is that of one of this process's ranks.
func (o *options) share(i int) share { return share{o.node*o.gpus + i, max(o.gpus, 1) * o.nodes} }

// A report is what -json prints.
type report struct {
	training.Report
	Group *groupReport `json:"group,omitempty"`
}

// A groupReport is what several ranks have in addition.
type groupReport struct {
	Ranks             int     `json:"ranks"`
	Comm              string  `json:"comm"`            // what moves gradients: host or nccl
	ImagesPerSecond   float64 `json:"images_per_s"`    // of all ranks
	PeakLiveBytes     []int64 `json:"peak_live_bytes"` // of this process's ranks
	PeakReservedBytes []int64 `json:"peak_reserved_bytes"`
}

// Print writes the report for people.
func (r report) Print(w io.Writer) {
	r.Report.Print(w)
	if r.Group != nil {
		fmt.Fprintf(w, "%d rank(s)       %.0f images/s together\n", r.Group.Ranks, r.Group.ImagesPerSecond)
	}
}
