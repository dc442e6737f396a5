package cupool_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/cupool/cupool"
)

// A Buffer is an array in device memory.
func ExampleBuffer() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	a, err := cupool.NewBuffer[float32](pool, 4, nil)
	if err != nil {
		log.Fatal(err)
	}
	b, err := cupool.BufferFrom(pool, []float32{1, 2, 3, 4}, nil)
	if err != nil {
		log.Fatal(err)
	}
	middle, err := b.View(1, 3)
	if err != nil {
		log.Fatal(err)
	}
	host := make([]float32, 4)
	if err := errors.Join(
		middle.CopyFrom([]float32{20, 30}),
		a.Memset(0),
		a.CopyBuffer(b),
		a.CopyTo(host),
	); err != nil {
		log.Fatal(err)
	}
	fmt.Println(host, a.Len(), a.Bytes())

	_, err = b.View(2, 9)
	fmt.Println(errors.Is(err, cupool.ErrInvalidRange))
	if err := errors.Join(a.Free(), b.Free()); err != nil {
		log.Fatal(err)
	}
	_, err = middle.ToHost()
	fmt.Println(errors.Is(err, cupool.ErrUseAfterFree))
	_, err = cupool.NewBuffer[*int](pool, 1, nil)
	fmt.Println(errors.Is(err, cupool.ErrNotSupported))
	// Output:
	// [1 20 30 4] 4 16
	// true
	// true
	// true
}

// ToHost copies the elements to a new slice; of a view, a part of them.
func ExampleBuffer_ToHost() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	b, err := cupool.BufferFrom(pool, []int16{1, 2, 3, 4, 5}, nil)
	if err != nil {
		log.Fatal(err)
	}
	all, err := b.ToHost()
	if err != nil {
		log.Fatal(err)
	}
	middle, err := b.View(1, 4)
	if err != nil {
		log.Fatal(err)
	}
	some, err := middle.ToHost()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(all, some, errors.Join(b.Free(), pool.Close()))
	// Output: [1 2 3 4 5] [2 3 4] <nil>
}

// On gives a buffer to another stream, which may still be at work when the
// buffer is freed.
func ExampleBuffer_On() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	side, err := pool.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	b, err := cupool.BufferFrom(pool, []int64{7}, nil)
	if err != nil {
		log.Fatal(err)
	}
	there, err := b.On(side)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(there.Ptr() == b.Ptr(), there.Block() == b.Block(), there.Stream() == side)
	if err := side.WaitStream(b.Stream()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(there.ToHost())
	fmt.Println(b.Free())
	// Output:
	// true true true
	// [7] <nil>
	// <nil>
}

// WithBuffer frees the buffer however the function ends.
func ExampleWithBuffer() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	err = cupool.WithBuffer(pool, 3, nil, func(b *cupool.Buffer[int32]) error {
		if err := b.CopyFrom([]int32{1, 2, 3}); err != nil {
			return err
		}
		values, err := b.ToHost()
		fmt.Println(values)
		return err
	})
	fmt.Println(err, pool.Close())
	// Output:
	// [1 2 3]
	// <nil> <nil>
}
