// Package training is what the examples that train on MNIST have in common:
// flags, data, and how they end and report.
package training

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/examples/internal/observe"
)

// Options are the flags of every training.
type Options struct {
	Device       string
	Data         string // directory; empty: the subset in the program
	TrainSamples int    // 0: all
	TestSamples  int    // 0: all
	Epochs       int
	Batch        int
	Hidden       Widths
	LR           float64 // 0: the optimizer's usual one
	Seed         uint64
	Optimizer    string
	Shift        int
	Graph        bool
	JSON         bool
	Observe      observe.Options
	Unwritten    error // why a file of Observe was not written, which no training ends for
}

// farthest is more than any image is wide or high.
const farthest = 1000

// usualRates are learning rates that suit the optimizers.
var usualRates = map[string]float64{"sgd": 0.1, "adam": 0.005}

// Register adds the flags to fs.
func (o *Options) Register(fs *flag.FlagSet) {
	o.Hidden = Widths{128}
	fs.StringVar(&o.Device, "device", "host", "`device` to train on: host, host:4GiB for a smaller one, cuda or cuda:1")
	fs.StringVar(&o.Data, "data", "", "`directory` of MNIST's four files, gzip or not (default: a subset of 10,000 + 2,000 images)")
	fs.IntVar(&o.TrainSamples, "train-samples", 0, "train on the first `n` samples only (default: all)")
	fs.IntVar(&o.TestSamples, "test-samples", 0, "test with the first `n` samples only (default: all)")
	fs.IntVar(&o.Epochs, "epochs", 6, "`passes` over the training set")
	fs.IntVar(&o.Batch, "batch", 100, "`samples` in a step")
	fs.Var(&o.Hidden, "hidden", "`widths` of the hidden layers, like 512,256; none for no hidden layer")
	fs.Float64Var(&o.LR, "lr", 0, fmt.Sprintf("learning `rate` of the first step, which falls to 0 (default: %v for sgd, %v for adam)", usualRates["sgd"], usualRates["adam"]))
	fs.Uint64Var(&o.Seed, "seed", 1, "`number` that all random numbers come from")
	fs.StringVar(&o.Optimizer, "optimizer", "sgd", "`method`: sgd, with momentum, or adam")
	fs.IntVar(&o.Shift, "shift", 1, "move training images by up to `n` pixels at random, against overfitting; with 0 they stay on the device")
	fs.BoolVar(&o.Graph, "graph", false, "run the steps as CUDA graphs")
	fs.BoolVar(&o.JSON, "json", false, "end with one line of JSON")
	o.Observe.Register(fs)
}

// Parse reads the command line and checks what it says. It returns flag.ErrHelp
// after it has printed the help that was asked for to out: what the program is,
// and its flags.
func (o *Options) Parse(fs *flag.FlagSet, about string, args []string, out io.Writer) error {
	fs.SetOutput(io.Discard) // Exit prints errors, in one line
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(out, "%s\n\nUsage of %s:\n", about, fs.Name())
			fs.SetOutput(out)
			fs.PrintDefaults()
		}
		return err
	}
	usual, known := usualRates[o.Optimizer]
	switch {
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case !known:
		return fmt.Errorf("-optimizer is sgd or adam, not %q", o.Optimizer)
	case o.Epochs < 1:
		return fmt.Errorf("-epochs must be at least 1, not %d", o.Epochs)
	case o.Batch < 1:
		return fmt.Errorf("-batch must be at least 1, not %d", o.Batch)
	case o.TrainSamples < 0 || o.TestSamples < 0:
		return errors.New("-train-samples and -test-samples must not be negative")
	case o.Shift < 0 || o.Shift > farthest:
		return fmt.Errorf("-shift must be from 0 to %d, not %d", farthest, o.Shift)
	case !(o.LR >= 0) || math.IsInf(o.LR, 0):
		return fmt.Errorf("-lr must be a positive number, not %v", o.LR)
	}
	if o.LR == 0 {
		o.LR = usual
	}
	return nil
}

// The uses of random numbers. Each has a sequence of its own, so that another
// width of a layer, say, does not change the order of the samples.
const (
	ForWeights = 1
	ForOrder   = 2
	ForShifts  = 4
)

// Random returns the random numbers of a use.
func (o *Options) Random(use uint64) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, use)) }

// PoolOn makes a pool as the flags and the environment (CUPOOL_ALLOC_CONF) say.
func (o *Options) PoolOn(device cupool.Driver) (*cupool.Pool, error) {
	return cupool.New(o.Observe.Config(cupool.Config{Driver: device}))
}

// Widths is a flag.Value of numbers with commas between them.
type Widths []int

const widest = 1 << 14

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
		if err != nil || n < 1 || n > widest {
			return fmt.Errorf("expected numbers from 1 to %d with commas between them", widest)
		}
		*w = append(*w, n)
	}
	return nil
}

// Layers are the widths of the whole network, from pixels to classes.
func (w Widths) Layers(in, out int) []int { return slices.Concat([]int{in}, w, []int{out}) }

// An Epoch is what came of one pass over the training set.
type Epoch struct {
	Loss         float64       // mean over its samples
	Accuracy     float64       // on the test set, after its last step
	Step         time.Duration // mean time of a step
	DriverAllocs int64         // memory that the pool had to ask the device for, in calls
}

// Print writes the line of epoch i of n.
func (e Epoch) Print(w io.Writer, i, n int) {
	fmt.Fprintf(w, "epoch %*d/%d  loss %.4f  test accuracy %.2f %%  device allocations %d  %v a step\n",
		len(fmt.Sprint(n)), i+1, n, e.Loss, 100*e.Accuracy, e.DriverAllocs, e.Step.Round(time.Microsecond))
}

// A Report is what -json prints of every training.
type Report struct {
	Device                 string  `json:"device"`
	TestAccuracy           float64 `json:"test_accuracy"`
	Steps                  int     `json:"steps"`
	StepMicrosMedian       float64 `json:"step_us_median"` // of the means of epochs
	HitRatio               float64 `json:"hit_ratio"`
	DriverAllocsFirstEpoch int64   `json:"driver_allocs_first_epoch"`
	DriverAllocsLastEpoch  int64   `json:"driver_allocs_last_epoch"`
	PeakLiveBytes          int64   `json:"peak_live_bytes"`
	PeakReservedBytes      int64   `json:"peak_reserved_bytes"`
	LeakedBlocks           int64   `json:"leaked_blocks"`
	FallbackOps            int64   `json:"gpu_fallback_ops"` // operations that the device left to the host
}

// NewReport sums up epochs of so many steps, when all tensors have been freed.
func NewReport(epochs []Epoch, steps int, pool *cupool.Pool, eng *cupool.Engine) Report {
	st := pool.Stats()
	r := Report{
		Device:            pool.Driver().Name(),
		Steps:             len(epochs) * steps,
		StepMicrosMedian:  MedianStep(epochs),
		HitRatio:          st.HitRatio(),
		PeakLiveBytes:     st.All.AllocatedBytes.Peak,
		PeakReservedBytes: st.All.ReservedBytes.Peak,
		LeakedBlocks:      st.All.Allocation.Current,
		FallbackOps:       eng.Stats().Fallbacks,
	}
	if n := len(epochs); n > 0 {
		r.TestAccuracy = epochs[n-1].Accuracy
		r.DriverAllocsFirstEpoch, r.DriverAllocsLastEpoch = epochs[0].DriverAllocs, epochs[n-1].DriverAllocs
	}
	return r
}

// MedianStep is the median of the epochs' Step, in microseconds: of two the lesser,
// as the first epoch warms up.
func MedianStep(epochs []Epoch) float64 {
	if len(epochs) == 0 {
		return 0
	}
	byStep := slices.SortedFunc(slices.Values(epochs), func(a, b Epoch) int { return cmp.Compare(a.Step, b.Step) })
	return float64(byStep[(len(byStep)-1)/2].Step.Nanoseconds()) / 1e3
}

// Print writes the report for people.
func (r Report) Print(w io.Writer) {
	fmt.Fprintf(w, "\ntest accuracy   %.2f %%\n", 100*r.TestAccuracy)
	fmt.Fprintf(w, "steps           %d, %.0f µs each (median)\n", r.Steps, r.StepMicrosMedian)
	fmt.Fprintln(w, "the pool")
	fmt.Fprintf(w, "  hit ratio     %.3f %% of the allocations needed no call to the device\n", 100*r.HitRatio)
	fmt.Fprintf(w, "  device calls  %d allocations in the first epoch, %d in the last\n", r.DriverAllocsFirstEpoch, r.DriverAllocsLastEpoch)
	fmt.Fprintf(w, "  peak live     %.1f MiB\n", MiB(r.PeakLiveBytes))
	fmt.Fprintf(w, "  reserved      %.1f MiB\n", MiB(r.PeakReservedBytes))
}

// A Number is one of a Report that may be no number, or infinite, where a training goes
// wrong. JSON has neither, and gets null.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// MiB is a number of bytes in MiB.
func MiB(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// The programs' exit statuses.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitInterrupted = 130 // as a shell reports Ctrl-C; of SIGTERM, too
)

// grace is how long run has to return after a signal: it waits for what devices were
// given to do, which may be all steps of an epoch. Launchers kill after 10 s and more.
var grace = 8 * time.Second

// Main calls run with the program's arguments and a context that Ctrl-C ends, and
// SIGTERM, by which launchers end their ranks. It exits with run's status, or with
// ExitInterrupted where run takes longer than grace; the system gives the memory back
// then. A second signal kills.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		stop()
		time.Sleep(grace)
		fmt.Fprintf(os.Stderr, "%s: interrupted, and the devices are not done after %v: %v\n", filepath.Base(os.Args[0]), grace, context.Cause(ctx))
		os.Exit(ExitInterrupted)
	})
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Usage prints an error of the command line and returns the exit status.
func Usage(name string, err error, stderr io.Writer) int {
	if errors.Is(err, flag.ErrHelp) {
		return ExitOK
	}
	fmt.Fprintf(stderr, "%s: %v (%s -h lists the flags)\n", name, err, name)
	return ExitUsage
}

// End prints what came of a training, an error or a report, and the files that are
// missing, and returns the exit status.
func End(name string, report interface{ Print(io.Writer) }, err error, o *Options, stdout, stderr io.Writer) int {
	if err == nil {
		var text bytes.Buffer
		report.Print(&text)
		if o.JSON {
			err = json.NewEncoder(&text).Encode(report)
		}
		_, full := stdout.Write(text.Bytes())
		err = errors.Join(err, full)
	}
	if err = errors.Join(err, o.Unwritten); err == nil {
		return ExitOK
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	if errors.Is(err, context.Canceled) {
		return ExitInterrupted
	}
	return ExitFailed
}

// Interrupted says where the training was, after so many steps of an epoch, which
// count from 0, if ctx has ended.
func Interrupted(ctx context.Context, epoch, step, steps int) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("interrupted in epoch %d after %d of %d steps: %w", epoch+1, step, steps, context.Cause(ctx))
}
