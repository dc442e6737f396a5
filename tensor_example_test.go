package cupool_test

import (
	"errors"
	"fmt"
	"log"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// Tensors in a pool, computed with as usual.
func ExampleEngine() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}

	x := tensor.New(tensor.WithShape(2, 3), tensor.Of(tensor.Float32), tensor.WithEngine(eng)) // zeroed
	if err := x.Memset(float32(2)); err != nil {
		log.Fatal(err)
	}
	y, err := tensor.Add(x, float32(1))
	if err != nil {
		log.Fatal(err)
	}
	sum, err := tensor.Sum(y, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum, eng.Owns(sum))

	if err := eng.FreeTensor(x, y, sum); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().All.Allocation.Current, "blocks live")
	// Output:
	// [6  6  6] true
	// 0 blocks live
}

// A training step frees all of its temporaries at once.
func ExampleEngine_Scope() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	weights, err := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 2, 3})))
	if err != nil {
		log.Fatal(err)
	}

	step := func() (loss tensor.Tensor, err error) {
		sc := eng.Scope()
		defer sc.Close()
		squares, err := tensor.Square(weights)
		if err != nil {
			return nil, err
		}
		if loss, err = tensor.Sum(squares); err != nil {
			return nil, err
		}
		return loss, sc.Keep(loss)
	}
	for range 100 {
		loss, err := step()
		if err != nil {
			log.Fatal(err)
		}
		if err := eng.FreeTensor(loss); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(pool.Stats().All.Allocation.Current, "block live: the weights")
	if err := eng.FreeTensor(weights); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1 block live: the weights
}

// Try turns tensor's panic into an error.
func ExampleTry() {
	pool, err := cupool.New(cupool.Config{Limit: 32 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	err = cupool.Try(func() error {
		tensor.New(tensor.WithShape(1<<24), tensor.Of(tensor.Float32), tensor.WithEngine(eng))
		return nil
	})
	var oom *cupool.OOMError
	fmt.Println(errors.As(err, &oom) && oom.Requested == 64<<20)
	// Output:
	// true
}
