// Gorgonia trains networks as Gorgonia graphs, which package gorgoniavm runs in
// place of Gorgonia's tape machine: on MNIST the perceptron of examples/mlp,
// Gorgonia's own example of a convolutional network, and a residual network; and
// on a text a recurrent network. All values, gradients and moments live in the
// pool.
//
//	go run ./examples/gorgonia                     # a subset of MNIST, built in
//	go run ./examples/gorgonia -compare            # beside the tape machine, step by step
//	go run ./examples/gorgonia -net convnet -train-samples 1000 -epochs 1
//	go run ./examples/gorgonia -net rnn -cell gru -hidden 64
//	go run ./examples/gorgonia -device cuda -shift 0 -graph
//	torchrun --no-python --nproc-per-node 2 gorgonia -device cuda -shift 0 -net resnet
//
// train.go has what cupool is about: the machine, the solver, and the training.
// nets.go and rnn.go build the graphs, data.go feeds them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/examples/internal/observe"
	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/nccl"
)

func main() { training.Main(run) }

// run is main with everything it depends on. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stdout)
	if err != nil {
		return training.Usage("gorgonia", err, stderr)
	}
	if o.launch.Rank > 0 { // the first of all ranks speaks for them
		o.Observe, stdout = observe.Options{}, io.Discard
	}
	r, err := train(ctx, o, stdout, stderr)
	return training.End("gorgonia", r, err, &o.Options, stdout, stderr)
}

// options are what the command line asks for.
type options struct {
	training.Options
	net     string
	compare bool
	cell    string // of -net rnn
	steps   int    // of a sequence

	launch dist.Launch // a rank of several, when torchrun or the like started this process
}

// ranks is how many processes train together, each on its part of every batch.
func (o *options) ranks() int { return max(o.launch.Size, 1) }

// A net is a kind of network that -net names.
type net struct {
	build func(o *options, b *builder) (logits *node)

	// Its usual ways, where they differ from the flags'.
	optimizer string
	lr        float64
	batch     int
}

var nets = map[string]net{
	"mlp":     {build: buildMLP},
	"convnet": {build: buildConvnet, optimizer: "rmsprop", lr: 0.001}, // as Gorgonia's example has it
	"resnet":  {build: buildResnet, batch: 64},
	"rnn":     {build: buildRNN, optimizer: "adam", lr: 0.005, batch: 32},
}

// parse reads the command line. It returns flag.ErrHelp after it has printed
// the help that was asked for to out.
func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("gorgonia", flag.ContinueOnError)
	o.Register(fs)
	fs.StringVar(&o.net, "net", "mlp", "`network`: mlp, convnet (Gorgonia's example, by RMSProp), resnet (13 convolutions with batch normalization, two on shortcuts), or rnn, which foretells the next character of a text")
	fs.BoolVar(&o.compare, "compare", false, "have a twin of the network do every step with Gorgonia's tape machine in Go's memory, and report its time too")
	fs.StringVar(&o.cell, "cell", "lstm", "`unit` of -net rnn: lstm or gru")
	fs.IntVar(&o.steps, "steps", 32, "`characters` of a sequence of -net rnn")
	if err := o.Parse(fs, "Gorgonia trains networks as Gorgonia graphs, every value in a cupool.", args, out); err != nil {
		return nil, err
	}
	var err error
	if o.launch, err = dist.FromEnv(); err != nil {
		return nil, err
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	n, known := nets[o.net]
	switch {
	case !known:
		return nil, fmt.Errorf("-net is mlp, convnet, resnet or rnn, not %q", o.net)
	case o.net != "rnn" && (given["cell"] || given["steps"]):
		return nil, errors.New("-cell and -steps are for -net rnn")
	case o.cell != "lstm" && o.cell != "gru":
		return nil, fmt.Errorf("-cell is lstm or gru, not %q", o.cell)
	case o.steps < 2 || o.steps > 255: // Gorgonia takes slices that differ by 256 for the same one, and one step has nothing before it
		return nil, fmt.Errorf("-steps is 2 to 255, not %d", o.steps)
	case o.ranks() > 1 && (!strings.HasPrefix(o.Device, "cuda") || o.Shift != 0 || o.compare || o.net == "rnn"):
		return nil, errors.New("several ranks train -net mlp, convnet or resnet with -device cuda and -shift 0, and without -compare")
	case o.net == "rnn" && len(o.Hidden) != 1:
		return nil, errors.New("-net rnn has one -hidden layer")
	case o.net == "rnn" && o.Data != "":
		return nil, errors.New("-net rnn learns from a text in the program; -data is for images")
	}
	if n.optimizer != "" && !given["optimizer"] {
		o.Optimizer = n.optimizer
		if !given["lr"] {
			o.LR = n.lr
		}
	}
	if n.batch > 0 && !given["batch"] {
		o.Batch = n.batch
	}
	if o.Batch%o.ranks() != 0 {
		return nil, fmt.Errorf("-batch %d cannot be split among %d ranks", o.Batch, o.ranks())
	}
	if o.ranks() > 1 && o.Device == "cuda" {
		o.Device = fmt.Sprint("cuda:", o.launch.LocalRank)
	}
	return o, nil
}

// train opens the device, makes a pool on it and an engine on that, trains,
// and gives everything back.
func train(ctx context.Context, o *options, stdout, stderr io.Writer) (r report, err error) {
	open := openImages
	if o.net == "rnn" {
		open = openText
	}
	trainSet, testSet, err := open(o)
	if err != nil {
		return r, err
	}
	device, err := cupool.Open(o.Device)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	if o.compare && !device.HostAccessible() {
		return r, fmt.Errorf("-compare: Gorgonia's tape machine computes on the CPU, which cannot touch the memory of %s; a device like cuda:0,managed will do", device.Name())
	}
	pool, err := o.PoolOn(device)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, pool.Close()) }() // complains of leaks
	stop, err := o.Observe.Serve(pool, stderr)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	stream, err := pool.NewStream() // the default stream cannot be captured
	if err != nil {
		return r, err
	}
	eng, err := cupool.NewEngine(pool, cupool.WithStream(stream))
	if err != nil {
		return r, err
	}
	t := &trainer{o: o, pool: pool, eng: eng, train: trainSet, test: testSet}
	if o.ranks() > 1 {
		l := o.launch
		comm, err := nccl.New(ctx, pool, nccl.Config{Rank: l.Rank, Size: l.Size, Address: l.Address, Token: l.Token})
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, comm.Close()) }()
		stop := context.AfterFunc(ctx, func() { _ = comm.Abort() }) // nothing waits for others any more
		defer stop()
		t.comm = comm
	}
	err = t.run(ctx, stdout)
	return t.report(), err
}

// A report is what -json prints.
type report struct {
	training.Report
	Net                  string           `json:"net"`
	LossFirst            training.Number  `json:"loss_first"` // of the first step
	LossLast             training.Number  `json:"loss_last"`
	TapeLossLast         training.Number  `json:"tape_loss_last,omitempty"` // the twin's, with -compare
	TapeStepMicrosMedian float64          `json:"tape_step_us_median,omitempty"`
	ForeignOps           map[string]int64 `json:"foreign_ops,omitempty"` // that Gorgonia computed on the CPU
	GraphSteps           int64            `json:"graph_steps,omitempty"` // that were launched as CUDA graphs
	GraphError           string           `json:"graph_error,omitempty"` // why others were not
}

// Print writes the report for people.
func (r report) Print(w io.Writer) {
	r.Report.Print(w)
	fmt.Fprintf(w, "loss            %.4f in the first step, %.4f in the last\n", r.LossFirst, r.LossLast)
	if r.TapeStepMicrosMedian > 0 {
		fmt.Fprintf(w, "tape machine    %.0f µs a step, in Go's memory, loss %.4f in the last\n", r.TapeStepMicrosMedian, r.TapeLossLast)
	}
	if r.GraphSteps > 0 {
		fmt.Fprintf(w, "CUDA graphs     %d steps\n", r.GraphSteps)
	}
	if r.GraphError != "" {
		fmt.Fprintf(w, "no CUDA graph   %s\n", r.GraphError)
	}
	for _, op := range slices.Sorted(maps.Keys(r.ForeignOps)) {
		fmt.Fprintf(w, "by Gorgonia     %s, %d times, on the CPU\n", op, r.ForeignOps[op])
	}
}
