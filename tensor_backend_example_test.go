package cupool_test

import (
	"errors"
	"fmt"
	"log"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// Options are gathered before the engine is made.
func ExampleEngineOption() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	stream, err := pool.NewStream()
	if err != nil {
		log.Fatal(err)
	}

	fast := true // or the value of a flag
	opts := []cupool.EngineOption{cupool.WithStream(stream)}
	if fast {
		opts = append(opts, cupool.WithTF32())
	}
	eng, err := cupool.NewEngine(pool, opts...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(eng.Stream() == stream)
	// Output: true
}

// Memory without a tensor, by the methods that tensor calls itself. Sizes are
// in bytes.
func ExampleEngine_Alloc() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}

	mem, err := eng.Alloc(16) // zeroed
	if err != nil {
		log.Fatal(err)
	}
	if err := eng.Memset(mem, float32(2)); err != nil { // every element of this type
		log.Fatal(err)
	}
	host := tensor.New(tensor.WithShape(4), tensor.Of(tensor.Float32))
	if err := eng.Memcpy(host, mem); err != nil {
		log.Fatal(err)
	}
	fmt.Println(host)

	eng.Memclr(mem) // has no error to return: Sync does
	if err := errors.Join(eng.Sync(), eng.Memcpy(host, mem), eng.Free(mem, 16)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(host)
	// Output:
	// [2  2  2  2]
	// [0  0  0  0]
}

// A tensor's numbers are read where they are if the CPU may do that, and else
// from a copy.
func ExampleEngine_Accessible() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	numbers := func(eng *cupool.Engine, x *tensor.Dense) ([]float32, error) {
		if !eng.AllocAccessible() { // as that of a GPU
			h, err := eng.ToHost(x)
			if err != nil {
				return nil, err
			}
			return h.Float32s(), nil
		}
		_, err := eng.Accessible(x) // waits for what the device still does
		return x.Float32s(), err
	}

	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float32{1, 2, 3})))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(numbers(eng, x))
	// Output: [1 2 3] <nil>
}

// What tensor asks an engine before it makes a tensor: whether it has memory of
// its own, and whether it takes the order of the elements. It takes every one.
func ExampleEngine_WorksWith() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors

	eng.NonStdAlloc() // does nothing: having the method says that Alloc is to be called
	x := tensor.New(tensor.WithShape(2, 3), tensor.Of(tensor.Float32), tensor.AsFortran(nil), tensor.WithEngine(eng))
	fmt.Println(eng.WorksWith(x.DataOrder()), eng.Owns(x))
	// Output:
	// true true
}

// An error says what was tried (Op) and why it failed (Err), which errors.Is
// and errors.As look into.
func ExampleEngineError() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float32{1, 2, 3})))
	if err != nil {
		log.Fatal(err)
	}
	y, err := eng.FromHost(tensor.New(tensor.WithBacking([]float32{1, 2})))
	if err != nil {
		log.Fatal(err)
	}

	wrong := eng.Copy(x, y)
	if err := eng.FreeTensor(x); err != nil {
		log.Fatal(err)
	}
	for _, err := range []error{wrong, eng.Zero(x), eng.FreeTensor(x)} {
		var failed *cupool.EngineError
		if !errors.As(err, &failed) {
			log.Fatal(err)
		}
		fmt.Printf("%s failed: %v\n", failed.Op, failed.Err)
		if errors.Is(err, cupool.ErrUseAfterFree) {
			fmt.Println("a tensor was used that had been freed")
		}
	}
	// Output:
	// copy failed: (2) of float32 to (3) of float32: wrong size
	// zero failed: use after free
	// a tensor was used that had been freed
	// free failed: tensor of shape (3): double free
}
