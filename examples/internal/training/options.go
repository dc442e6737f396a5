package training

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

	"github.com/cupool/cupool/examples/internal/observe"
)

// Options are what the command line of every training has.
type Options struct {
	Device        string
	Data          string // directory; empty: the subset in the program
	TrainSamples  int    // 0: all
	Epochs        int
	Batch         int
	Hidden        Widths
	LR            float64 // 0: the optimizer's usual one
	Seed          uint64
	Optimizer     string
	Shift         int
	ShuffleLabels bool
	JSON          bool
	Observe       observe.Options
}

// usualRates are learning rates that suit the optimizers.
var usualRates = map[string]float64{"sgd": 0.1, "adam": 0.005}

// Register adds the flags to fs.
func (o *Options) Register(fs *flag.FlagSet) {
	o.Hidden = Widths{128}
	fs.StringVar(&o.Device, "device", "host", "`device` to train on: host, host:4GiB for a smaller one, or, built with -tags gpu, cuda or cuda:1")
	fs.StringVar(&o.Data, "data", "", "`directory` of MNIST's four files, gzip or not (default: a subset of 10,000 + 2,000 images)")
	fs.IntVar(&o.TrainSamples, "train-samples", 0, "train on the first `n` images only (default: all)")
	fs.IntVar(&o.Epochs, "epochs", 6, "`passes` over the training set")
	fs.IntVar(&o.Batch, "batch", 100, "`samples` in a step")
	fs.Var(&o.Hidden, "hidden", "`widths` of the hidden layers, like 512,256; none for no hidden layer")
	fs.Float64Var(&o.LR, "lr", 0, fmt.Sprintf("learning `rate` of the first step, which falls to 0 (default: %v for sgd, %v for adam)", usualRates["sgd"], usualRates["adam"]))
	fs.Uint64Var(&o.Seed, "seed", 1, "`number` that all random numbers come from")
	fs.StringVar(&o.Optimizer, "optimizer", "sgd", "`method`: sgd, with momentum, or adam")
	fs.IntVar(&o.Shift, "shift", 1, "move training images by up to `n` pixels at random, against overfitting; with 0 they stay on the device")
	fs.BoolVar(&o.ShuffleLabels, "shuffle-labels", false, "train on shuffled labels: nothing can be learned")
	fs.BoolVar(&o.JSON, "json", false, "end with one line of JSON")
	o.Observe.Register(fs)
}

// Parse reads the command line. It returns flag.ErrHelp after it has printed
// the help that was asked for to out: what the program is, and its flags.
func Parse(fs *flag.FlagSet, about string, args []string, out io.Writer) error {
	fs.SetOutput(io.Discard) // Usage prints errors, in one line
	fs.Usage = func() {}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(out, "%s\n\nUsage of %s:\n", about, fs.Name())
			fs.SetOutput(out)
			fs.PrintDefaults()
		}
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return nil
}

// Complete checks the values and fills in what depends on others.
func (o *Options) Complete() error {
	usual, ok := usualRates[o.Optimizer]
	switch {
	case !ok:
		return fmt.Errorf("-optimizer is sgd or adam, not %q", o.Optimizer)
	case o.Epochs < 1:
		return fmt.Errorf("-epochs must be at least 1, not %d", o.Epochs)
	case o.Batch < 1:
		return fmt.Errorf("-batch must be at least 1, not %d", o.Batch)
	case o.TrainSamples < 0:
		return fmt.Errorf("-train-samples must not be negative, as %d is", o.TrainSamples)
	case o.Shift < 0:
		return fmt.Errorf("-shift must not be negative, as %d is", o.Shift)
	case !(o.LR >= 0) || math.IsInf(o.LR, 0):
		return fmt.Errorf("-lr must be a positive number, not %v", o.LR)
	}
	if o.LR == 0 {
		o.LR = usual
	}
	return nil
}

// The uses of random numbers. Each has a sequence of its own, so that, say,
// another width of a layer does not change the order of the samples.
const (
	ForWeights = iota + 1
	ForOrder
	ForLabels
	ForShifts
)

// Random returns the random numbers of a use.
func (o *Options) Random(use uint64) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, use)) }

// Rate returns the learning rate when so much of the training is done, from 0
// to 1.
func (o *Options) Rate(done float64) float64 { return o.LR * (1 - done) }

// Widths is a flag.Value of numbers with commas between them.
type Widths []int

func (w *Widths) String() string {
	if len(*w) == 0 {
		return "none"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint([]int(*w)), " ", ","), "[]")
}

// Set implements flag.Value.
func (w *Widths) Set(s string) error {
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

// Layers are the widths of the whole network, from pixels to classes.
func (w Widths) Layers(in, out int) []int { return slices.Concat([]int{in}, w, []int{out}) }
