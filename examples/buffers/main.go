// Buffers uses the pool on its own, without tensors: buffers that travel
// between two streams, and running out of memory.
//
//	go run ./examples/buffers [-device host]
//	go run ./examples/buffers -rounds 100000 -http localhost:6060
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/examples/internal/observe"
)

const (
	elements  = 1 << 20 // of 4 bytes: every buffer is 4 MiB
	fewRounds = 4       // so many rounds have a line each
)

// options are what the command line asks for.
type options struct {
	device  string
	rounds  int
	args    []string // behind the flags: none
	observe observe.Options
}

func main() {
	var o options
	flag.StringVar(&o.device, "device", "host", "`device`: host, host:64MiB for a smaller one, or cuda")
	flag.IntVar(&o.rounds, "rounds", fewRounds, "`times` that values are loaded and used")
	o.observe.Register(flag.CommandLine)
	flag.Parse()
	o.args = flag.Args()
	status, err := 2, o.check()
	if err == nil {
		status, err = 1, run(os.Stdout, os.Stderr, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "buffers:", err)
		os.Exit(status)
	}
}

// check fails for a command line that is wrong.
func (o *options) check() error {
	if len(o.args) > 0 {
		return fmt.Errorf("unexpected argument %q", o.args[0])
	}
	if o.rounds < 1 {
		return fmt.Errorf("-rounds must be at least 1, not %d", o.rounds)
	}
	return nil
}

// run opens a device and a pool, and gives both back.
func run(stdout, stderr io.Writer, o options) (err error) {
	dev, err := cupool.Open(o.device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	pool, err := cupool.New(o.observe.Config(cupool.Config{Driver: dev, Limit: 40 << 20})) // and what CUPOOL_ALLOC_CONF says
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }() // names what leaked
	stop, err := o.observe.Serve(pool, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	return errors.Join(twoStreams(stdout, pool, o.rounds), outOfMemory(stdout, pool), o.observe.Write(pool))
}

// twoStreams loads values on one stream and uses them on another.
func twoStreams(stdout io.Writer, pool *cupool.Pool, rounds int) error {
	load, err1 := pool.NewStream()
	compute, err2 := pool.NewStream()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	// WithBuffer is a scope: result is freed when the function returns.
	return cupool.WithBuffer(pool, elements, compute, func(result *cupool.Buffer[float32]) error {
		values := make([]float32, elements)
		for round := range rounds {
			values[0] = float32(round)
			in, err := cupool.BufferFrom(pool, values, load)
			if err != nil {
				return err
			}
			// compute reads what load has written; recorded on the block,
			// in can be freed at once, however far the streams have come.
			if err := errors.Join(
				compute.WaitStream(load),
				pool.RecordStream(in.Block(), compute),
				result.CopyBuffer(in),
				in.Free()); err != nil {
				return err
			}
			if rounds <= fewRounds {
				fmt.Fprintf(stdout, "round %d: loaded at %v, %d KiB wait for the compute stream\n", round, in.Ptr(), pool.Stats().PendingBytes>>10)
			}
		}
		got, err := result.ToHost() // waits for compute
		fmt.Fprintf(stdout, "result: %v\n", got[0])
		return err
	})
}

// outOfMemory nests scopes until nothing is left. Each one frees its buffer
// on the way out, and the pool is as good as before.
func outOfMemory(w io.Writer, pool *cupool.Pool) error {
	var fill func(*cupool.Buffer[float32]) error
	fill = func(*cupool.Buffer[float32]) error {
		return cupool.WithBuffer(pool, elements, nil, fill)
	}
	err := fill(nil)
	var oom *cupool.OOMError
	if !errors.As(err, &oom) {
		return err
	}
	fmt.Fprintln(w, oom)
	return cupool.WithBuffer(pool, elements, nil, func(b *cupool.Buffer[float32]) error {
		_, err := fmt.Fprintf(w, "recovered: %d KiB at %v\n", b.Bytes()>>10, b.Ptr())
		return err
	})
}
