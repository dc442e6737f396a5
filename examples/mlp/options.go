package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// options are what the command line asks for.
type options struct {
	device        string
	data          string // directory; empty: the subset in the program
	trainSamples  int    // 0: all
	epochs        int
	batch         int
	hidden        widths
	lr            float64 // 0: the optimizer's usual one
	seed          uint64
	optimizer     string
	shift         int
	shuffleLabels bool
	plan          bool
	graph         bool
	prefetch      bool
	json          bool
}

// usualRates are learning rates that suit the optimizers.
var usualRates = map[string]float64{"sgd": 0.1, "adam": 0.005}

// parse reads the command line. It returns flag.ErrHelp after it has printed
// the help that was asked for to out.
func parse(args []string, out io.Writer) (*options, error) {
	o := &options{hidden: widths{128}}
	fs := flag.NewFlagSet("mlp", flag.ContinueOnError)
	fs.StringVar(&o.device, "device", "host", "`device` to train on: host, host:4GiB for a smaller one, or, built with -tags gpu, cuda or cuda:1")
	fs.StringVar(&o.data, "data", "", "`directory` of MNIST's four files, gzip or not (default: a subset of 10,000 + 2,000 images)")
	fs.IntVar(&o.trainSamples, "train-samples", 0, "train on the first `n` images only (default: all)")
	fs.IntVar(&o.epochs, "epochs", 6, "`passes` over the training set")
	fs.IntVar(&o.batch, "batch", 100, "`samples` in a step")
	fs.Var(&o.hidden, "hidden", "`widths` of the hidden layers, like 512,256; none for no hidden layer")
	fs.Float64Var(&o.lr, "lr", 0, fmt.Sprintf("learning `rate` of the first step, which falls to 0 (default: %v for sgd, %v for adam)", usualRates["sgd"], usualRates["adam"]))
	fs.Uint64Var(&o.seed, "seed", 1, "`number` that all random numbers come from")
	fs.StringVar(&o.optimizer, "optimizer", "sgd", "`method`: sgd, with momentum, or adam")
	fs.IntVar(&o.shift, "shift", 1, "move training images by up to `n` pixels at random, against overfitting; with 0 they stay on the device")
	fs.BoolVar(&o.shuffleLabels, "shuffle-labels", false, "train on shuffled labels: nothing can be learned")
	fs.BoolVar(&o.plan, "plan", false, "serve the steps by a plan of their memory, which is made from the first ones")
	fs.BoolVar(&o.graph, "graph", false, "run the steps as a CUDA graph, captured once an epoch; with -shift 0 and sgd only")
	fs.BoolVar(&o.prefetch, "prefetch", false, "make the next batch on another stream while the device computes; not with -shift 0")
	fs.BoolVar(&o.json, "json", false, "end with one line of JSON")

	fs.SetOutput(io.Discard) // main prints errors, in one line
	fs.Usage = func() {}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(out, "Mlp trains a multi-layer perceptron on MNIST, every tensor in a cupool.\n\nUsage of mlp:")
			fs.SetOutput(out)
			fs.PrintDefaults()
		}
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return o, o.complete()
}

// complete checks the values and fills in what depends on others.
func (o *options) complete() error {
	usual, ok := usualRates[o.optimizer]
	switch {
	case !ok:
		return fmt.Errorf("-optimizer is sgd or adam, not %q", o.optimizer)
	case o.epochs < 1:
		return fmt.Errorf("-epochs must be at least 1, not %d", o.epochs)
	case o.batch < 1:
		return fmt.Errorf("-batch must be at least 1, not %d", o.batch)
	case o.trainSamples < 0:
		return fmt.Errorf("-train-samples must not be negative, as %d is", o.trainSamples)
	case o.shift < 0:
		return fmt.Errorf("-shift must not be negative, as %d is", o.shift)
	case o.graph && (o.shift != 0 || o.optimizer != "sgd" || o.plan):
		return errors.New("-graph needs -shift 0 and -optimizer sgd, and goes without -plan")
	case o.prefetch && (o.shift == 0 || o.plan):
		return errors.New("-prefetch is for batches made on the host, not with -shift 0, and goes without -plan")
	case !(o.lr >= 0) || math.IsInf(o.lr, 0):
		return fmt.Errorf("-lr must be a positive number, not %v", o.lr)
	}
	if o.lr == 0 {
		o.lr = usual
	}
	return nil
}

// The uses of random numbers. Each has a sequence of its own, so that, say,
// another width of a layer does not change the order of the samples.
const (
	forWeights = iota + 1
	forOrder
	forLabels
	forShifts
)

func (o *options) random(use uint64) *rand.Rand { return rand.New(rand.NewPCG(o.seed, use)) }

// widths is a flag.Value of numbers with commas between them.
type widths []int

func (w *widths) String() string {
	if len(*w) == 0 {
		return "none"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint([]int(*w)), " ", ","), "[]")
}

func (w *widths) Set(s string) error {
	*w = nil
	if s == "none" {
		return nil
	}
	for field := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 1 {
			return errors.New("expected positive whole numbers with commas between them")
		}
		*w = append(*w, n)
	}
	return nil
}

// layers are the widths of the whole network, from pixels to classes.
func (w widths) layers(in, out int) []int { return slices.Concat([]int{in}, w, []int{out}) }
