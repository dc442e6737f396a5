// Soak uses an allocator in every way at once, for as long as wanted, and fails
// when memory is corrupted, when something leaks, when a call fails that should
// not, or when anything grows that should stay flat:
//
//	go run ./cmd/soak -duration 1h -out soak.jsonl
//	go run -tags gpu ./cmd/soak -device cuda -duration 10m
//
// A training run of the network of examples/mlp repeats itself, while 64
// goroutines work on 16 streams: they allocate, write a pattern, use the block
// on other streams, have the device copy parts of the pattern to a place of
// their own, free the block at once, and compare the copies later. Streams and
// private pools are made and closed all the time, caches are trimmed, memory
// runs out, and the allocator sleeps. At quiet moments the allocator's rules
// are checked, and its books are compared with the program's.
//
// A run of less than ten minutes tells what grew, but does not fail for it.
//
// The last line of the output is a summary as JSON; -out has every sample, a
// line of JSON each. The exit status is 0 when all was well, 1 when something
// was found, 2 for wrong usage, and 3 when the program hangs, after all
// goroutines were printed. Ctrl-C ends a run early, which is judged all the
// same.
//
// worker.go has what the goroutines do, pattern.go how contents are checked,
// chores.go what goes on beside them, quiet.go the quiet moments, training.go
// the training, samples.go and flat.go what is measured and how it is judged.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/cupool/cupool"
)

// The exit statuses.
const (
	exitOK    = 0
	exitFound = 1
	exitUsage = 2
	exitHangs = 3
)

// grace is how long a run may take to end, after its time.
const grace = 3 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with everything it depends on. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "soak: %v\n", err)
		return exitUsage
	}
	over := make(chan struct{})
	defer close(over)
	go watch(ctx, o.duration, over, stderr)

	sum, err := soakFor(ctx, o, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "soak: %v\n", err)
		return exitFound
	}
	if err := json.NewEncoder(stdout).Encode(sum); err != nil {
		fmt.Fprintf(stderr, "soak: %v\n", err)
		return exitFound
	}
	if !sum.OK {
		fmt.Fprintf(stderr, "soak: %s\n", sum.verdict())
		return exitFound
	}
	return exitOK
}

// watch ends the program with all its goroutines on stderr, unless over comes
// soon enough after d or after ctx is done.
func watch(ctx context.Context, d time.Duration, over <-chan struct{}, stderr io.Writer) {
	select {
	case <-over:
		return
	case <-ctx.Done():
	case <-time.After(d):
	}
	select {
	case <-over:
	case <-time.After(grace):
		fmt.Fprintf(stderr, "soak: hangs: the run has not ended %v after its time\n", grace)
		_ = pprof.Lookup("goroutine").WriteTo(stderr, 2)
		os.Exit(exitHangs)
	}
}

// options are what the command line asks for.
type options struct {
	device   string
	duration time.Duration
	out      string // file; "": none
	mnist    string // directory; "": the built-in part
	workers  int
	streams  int
	steps    int   // of a training
	limit    int64 // bytes
	backing  cupool.Backing
	seed     uint64

	plant string // what tests break: see worker.go
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("soak", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.device, "device", "host:2GiB", "`device`: host, host:BYTES, cuda or cuda:ORDINAL")
	fs.DurationVar(&o.duration, "duration", time.Minute, "`time` to run")
	fs.StringVar(&o.out, "out", "", "`file` for the samples, a line of JSON each")
	fs.StringVar(&o.mnist, "mnist", "", "`directory` with MNIST (default: the built-in part of it)")
	fs.IntVar(&o.workers, "workers", 64, "goroutines that allocate")
	fs.IntVar(&o.streams, "streams", 16, "streams that they use")
	fs.Uint64Var(&o.seed, "seed", 0, "`seed` of what is random (default: the time)")
	fs.IntVar(&o.steps, "steps", usualSteps, "steps of each training")
	limit := fs.String("limit", "1GiB", "`bytes` that may be reserved")
	segments := fs.Bool("segments", false, "use segments where the device has virtual memory")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if o.workers < 1 || o.streams < 2 || o.steps < 1 || o.duration <= 0 {
		return o, errors.New("it takes a duration, at least one worker, one step and two streams")
	}
	if o.limit, err = cupool.ParseBytes(*limit); err != nil {
		return o, err
	}
	if o.limit < 64<<20 {
		return o, errors.New("the limit has to be at least 64 MiB")
	}
	if *segments {
		o.backing = cupool.BackingSegments
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	return o, nil
}
