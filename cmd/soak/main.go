// Soak runs programs of internal/model on a device for as long as wanted, many at a
// time, and trains a network beside them. It fails when an allocator gives an answer
// that cannot be right, when something leaks, or when anything grows that should stay
// flat:
//
//	go run ./cmd/soak -duration 1h -out soak.jsonl
//	go run ./cmd/soak -device cuda -duration 10m
//
// Each worker has an allocator, of one Config or another, on which programs run one
// after the other, on one goroutine or on several. The model says whether contents, books,
// errors and the order of work are right. Some allocators are replaced after a while,
// and some last for the whole run.
//
// A run of less than ten minutes tells what grew, but does not fail for it.
//
// The last line of the output is a summary as JSON; -out has every sample, a
// line of JSON each. The exit status is 0 when all was well, 1 when something
// was found, which ends the run, 2 for wrong usage, and 3 when the program hangs,
// after all goroutines were printed. Ctrl-C ends a run early, which is judged all the
// same.
//
// soak.go has what the workers do, training.go the training, meters.go what is measured
// and how it is judged.
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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/model"
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
		fmt.Fprintf(stderr, "soak: %s\n", strings.Join(slices.Concat(sum.Found, sum.Grown), "\n  "))
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
	workers  int
	limit    int64 // bytes
	seed     uint64

	// What tests break: something between a program and its allocator, and something
	// that is called between programs.
	breaks  func(model.Tested) model.Tested
	between func(cupool.Driver) error
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("soak", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.device, "device", "host:2GiB", "`device`: host, host:BYTES, cuda or cuda:ORDINAL")
	fs.DurationVar(&o.duration, "duration", time.Minute, "`time` to run")
	fs.StringVar(&o.out, "out", "", "`file` for the samples, a line of JSON each")
	fs.IntVar(&o.workers, "workers", 8, "programs that run at a time")
	fs.Uint64Var(&o.seed, "seed", 0, "`seed` of what is random (default: the time)")
	limit := fs.String("limit", "1GiB", "`bytes` that all allocators may reserve together")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if o.workers < 1 || o.duration <= 0 {
		return o, errors.New("it takes a duration and at least one worker")
	}
	if o.limit, err = cupool.ParseBytes(*limit); err != nil {
		return o, err
	}
	if o.limit>>24 < int64(o.workers) {
		return o, errors.New("the limit has to be at least 16 MiB for each worker")
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	return o, nil
}
