package dist_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"sync"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
)

// open returns a pool over the computer's own memory.
func open() *cupool.Pool {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return pool
}

// Two ranks in one process add up what they have.
func ExampleLocal() {
	pools := []*cupool.Pool{open(), open()}
	comms, err := dist.Local(pools...)
	if err != nil {
		log.Fatal(err)
	}
	for i, c := range comms {
		b, err := cupool.BufferFrom(pools[i], []float32{1, 2, float32(i)}, nil)
		if err != nil {
			log.Fatal(err)
		}
		m, err := dist.Of(b)
		if err != nil {
			log.Fatal(err)
		}
		if err := c.AllReduce(m, m, dist.Sum, nil); err != nil { // on the default stream of each
			log.Fatal(err)
		}
		defer func() {
			sums, err := b.ToHost() // waits for the stream
			fmt.Println("rank", c.Rank(), "of", c.Size(), sums, err, c.Err())
		}()
	}
	// Output:
	// rank 1 of 2 [2 4 1] <nil> <nil>
	// rank 0 of 2 [2 4 1] <nil> <nil>
}

// What torchrun, srun or Kubernetes tells each process.
func ExampleFromEnv() {
	for name, value := range map[string]string{"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "first", "MASTER_PORT": "29500"} {
		os.Setenv(name, value)
		defer os.Unsetenv(name)
	}
	var l dist.Launch
	l, err := dist.FromEnv()
	fmt.Println("rank", l.Rank, "of", l.Size, "on GPU", l.LocalRank, "meets the others at", l.Address, err)
	// Output: rank 3 of 8 on GPU 1 meets the others at first:29500 <nil>
}

// Gradients of two ranks become their means while the backward pass goes on.
func ExampleReducer() {
	pools := []*cupool.Pool{open(), open()}
	comms, err := dist.Local(pools...)
	if err != nil {
		log.Fatal(err)
	}
	train := func(c dist.Comm, pool *cupool.Pool) error {
		eng, err := cupool.NewEngine(pool)
		if err != nil {
			return err
		}
		var grads []tensor.Tensor // as the backward pass makes them: the last layer's first
		for _, host := range [][]float32{{1, 2, 3}, {float32(10 * c.Rank())}} {
			g, err := eng.FromHost(tensor.New(tensor.WithBacking(host)))
			if err != nil {
				return err
			}
			grads = append(grads, g)
		}
		var r *dist.Reducer
		r, err = dist.NewReducer(c, eng, grads, dist.ReducerConfig{BucketBytes: 8})
		if err != nil {
			return err
		}
		for i := range grads { // the backward pass, layer by layer
			if err := r.Ready(i); err != nil {
				return err
			}
		}
		if err := r.Finish(); err != nil { // before the optimizer's step
			return err
		}
		for _, g := range grads {
			host, err := eng.ToHost(g)
			if err != nil {
				return err
			}
			if c.Rank() == 0 {
				fmt.Println(host.Float32s())
			}
		}
		return errors.Join(r.Close(), c.Close())
	}
	var wg sync.WaitGroup
	for i, c := range comms {
		wg.Go(func() {
			if err := train(c, pools[i]); err != nil {
				log.Fatal(err)
			}
		})
	}
	wg.Wait()
	// Output:
	// [1 2 3]
	// [5]
}
