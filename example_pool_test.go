package cupool_test

import (
	"errors"
	"fmt"
	"log"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// A tenant gets a pool with a limit of its own. When he leaves, Close gives all
// that he held back at once and says what that was.
func ExamplePool_NewPool() {
	c, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	tenant, err := c.NewPool(cupool.PoolConfig{Name: "tenant 7", Limit: 64 << 20})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := tenant.Alloc(48<<20, nil); err != nil {
		log.Fatal(err)
	}
	_, err = tenant.Alloc(32<<20, nil)
	fmt.Println("over the limit:", errors.Is(err, cupool.ErrOutOfMemory))
	for _, p := range c.Pools() {
		fmt.Printf("%s holds %d MiB, the allocator %d\n", p.Name(), p.Stats().LiveBytes>>20, c.Stats().LiveBytes>>20)
	}
	var leak *cupool.LeakError
	if errors.As(tenant.Close(), &leak) {
		fmt.Println("given back:", leak.Bytes>>20, "MiB")
	}
	// Output:
	// over the limit: true
	// tenant 7 holds 48 MiB, the allocator 0
	// given back: 48 MiB
}

// What is computed in the scope lives in the pool.
func ExampleEngine_ScopeIn() {
	c, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	activations, err := c.NewPool(cupool.PoolConfig{Name: "activations", UseOnOOM: true})
	if err != nil {
		log.Fatal(err)
	}
	e, err := cupool.NewEngine(c)
	if err != nil {
		log.Fatal(err)
	}
	weights := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(1024), tensor.WithEngine(e))
	sc, err := e.ScopeIn(activations)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := tensor.Add(weights, weights); err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Stats().LiveBytes, activations.Stats().LiveBytes)
	if err := errors.Join(sc.Close(), e.FreeTensor(weights)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Stats().LiveBytes, activations.Stats().LiveBytes)
	// Output:
	// 4096 4096
	// 0 0
}

// A block that somebody uses whom no stream shows, such as another process (package
// ipc): its memory is kept until that is over, whoever frees the block.
func ExamplePool_Hold() {
	d, err := cupool.OpenHost(cupool.HostConfig{Shareable: false}) // true: other processes may map the memory
	if err != nil {
		log.Fatal(err)
	}
	c, err := cupool.New(cupool.Config{Driver: d})
	if err != nil {
		log.Fatal(err)
	}
	b, err := c.Alloc(1<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	release, err := c.Hold(b)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Free(b), c.Stats().PendingBytes)
	release()
	fmt.Println(c.Stats().PendingBytes, c.Close(), d.Close())
	// Output:
	// <nil> 1048576
	// 0 <nil> <nil>
}
