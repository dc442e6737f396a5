// Buffers uses the pool on its own, without tensors: buffers that travel
// between two streams, and running out of memory.
//
//	go run ./examples/buffers [-device host]
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/cupool/cupool"
)

const elements = 1 << 20 // of 4 bytes: every buffer is 4 MiB

func main() {
	device := flag.String("device", "host", "`device`: host, or host:64MiB for a smaller one")
	flag.Parse()
	if err := run(os.Stdout, *device); err != nil {
		fmt.Fprintln(os.Stderr, "buffers:", err)
		os.Exit(1)
	}
}

// run opens a device and a pool, and gives both back.
func run(w io.Writer, device string) (err error) {
	dev, err := cupool.Open(device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	cfg, _, err := cupool.ConfigFromEnv(cupool.Config{Driver: dev, Limit: 40 << 20}) // and what CUPOOL_ALLOC_CONF says
	if err != nil {
		return err
	}
	pool, err := cupool.New(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }() // names what leaked

	return errors.Join(twoStreams(w, pool), outOfMemory(w, pool))
}

// twoStreams loads values on one stream and uses them on another.
func twoStreams(w io.Writer, pool *cupool.Caching) error {
	load, err1 := pool.NewStream()
	compute, err2 := pool.NewStream()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	// WithBuffer is a scope: result is freed when the function returns.
	return cupool.WithBuffer(pool, elements, compute, func(result *cupool.Buffer[float32]) error {
		values := make([]float32, elements)
		for round := range 4 {
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
			fmt.Fprintf(w, "round %d: loaded at %v, %d KiB wait for the compute stream\n", round, in.Ptr(), pool.Stats().PendingBytes>>10)
		}
		got, err := result.ToHost() // waits for compute
		fmt.Fprintf(w, "result: %v\n", got[0])
		return err
	})
}

// outOfMemory nests scopes until nothing is left. Each one frees its buffer
// on the way out, and the pool is as good as before.
func outOfMemory(w io.Writer, pool *cupool.Caching) error {
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
		fmt.Fprintf(w, "recovered: %d KiB at %v\n", b.Bytes()>>10, b.Ptr())
		return nil
	})
}
