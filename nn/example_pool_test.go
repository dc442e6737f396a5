package nn_test

import (
	"errors"
	"fmt"
	"log"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/nn"
)

// An image is pooled by squares of 2×2, and goes back to its size.
func ExampleMaxPool2d() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	sc := eng.Scope()
	defer sc.Close()

	x, _ := eng.FromHost(tensor.New(tensor.WithShape(1, 1, 2, 4), tensor.WithBacking([]float32{1, 2, 7, 0, 4, 3, 5, 8})))
	y, _ := eng.Empty(tensor.Float32, 1, 1, 1, 2)
	dx, _ := eng.Empty(tensor.Float32, 1, 1, 2, 4)
	print := func(name string, t tensor.Tensor, errs ...error) {
		if err := errors.Join(errs...); err != nil {
			log.Fatal(err)
		}
		h, _ := eng.ToHost(t)
		fmt.Println(name, h.Data())
	}
	w := nn.Window{Size: [2]int{2, 2}, Stride: [2]int{2, 2}}
	print("largest ", y, nn.MaxPool2d(eng, x, y, w))
	print("its back", dx, nn.MaxPool2dBack(eng, x, y, y, dx, w, nn.NoActivation))
	print("average ", y, nn.AvgPool2d(eng, x, y, w, 0))
	print("its back", dx, nn.AvgPool2dBack(eng, y, dx, w, 0))
	print("Gorgonia", dx, nn.GorgoniaAvgPool2dBack(eng, y, dx, w))
	print("upsample", dx, nn.Upsample2d(eng, y, dx, 2))
	print("its back", y, nn.Upsample2dBack(eng, dx, y, 2))
	// Output:
	// largest  [4 8]
	// its back [0 0 0 0 4 0 0 8]
	// average  [2.5 5]
	// its back [0.625 0.625 1.25 1.25 0.625 0.625 1.25 1.25]
	// Gorgonia [0.625 1.25 0 0 0 0 0 0]
	// upsample [2.5 2.5 5 5 2.5 2.5 5 5]
	// its back [10 20]
}
