package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/nccl"
)

func openExample() (cuda.Driver, *cupool.Pool) {
	device, err := cuda.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	pool, err := cupool.New(cupool.Config{Driver: device})
	if err != nil {
		log.Fatal(err)
	}
	return device, pool
}

// A sum over the ranks, one for each process. Here there is one; several have an
// Address, as dist.FromEnv tells it.
func ExampleNew() {
	device, pool := openExample()
	defer device.Close()
	defer pool.Close()
	c, err := nccl.New(context.Background(), pool, nccl.Config{Rank: 0, Size: 1, Timeout: nccl.DefaultTimeout})
	if err != nil {
		log.Fatal(err)
	}
	b, err := cupool.NewBuffer[float32](pool, 3, nil)
	if err != nil {
		log.Fatal(err)
	}
	m, err := dist.Of(b)
	fmt.Println(errors.Join(err, b.CopyFrom([]float32{1, 2, 3}), c.AllReduce(m, m, dist.Sum, nil)))
	fmt.Println(b.ToHost())
	fmt.Println(c.Rank(), c.Size(), c.Err(), b.Free(), c.Close())
	// Output:
	// <nil>
	// [1 2 3] <nil>
	// 0 1 <nil> <nil> <nil>
}

// The ranks of one process: one for each GPU, each used by a goroutine. Here there
// is one.
func ExampleNewLocal() {
	device, pool := openExample()
	defer device.Close()
	defer pool.Close()
	comms, err := nccl.NewLocal(context.Background(), []*cupool.Pool{pool}, nccl.Config{Timeout: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	var c *nccl.Comm = comms[0]
	x, err1 := cupool.NewBuffer[int32](pool, 2, nil)
	y, err2 := cupool.NewBuffer[int32](pool, 2, nil)
	if err := errors.Join(err1, err2, x.CopyFrom([]int32{1, 2})); err != nil {
		log.Fatal(err)
	}
	src, err1 := dist.Of(x)
	dst, err2 := dist.Of(y)
	fmt.Println(errors.Join(err1, err2, c.Broadcast(dst, src, 0, nil), c.AllGather(dst, src, nil), c.ReduceScatter(dst, src, dist.Max, nil)))
	next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	fmt.Println(c.Group(func() error {
		return errors.Join(c.Send(src, next, nil), c.Recv(dst, before, nil))
	}))
	fmt.Println(y.ToHost())
	fmt.Println(errors.Join(x.Free(), y.Free(), c.Close()))
	// Output:
	// <nil>
	// <nil>
	// [1 2] <nil>
	// <nil>
}
