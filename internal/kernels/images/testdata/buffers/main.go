// Buffers uses memory of a device, and computes nothing with it.
package main

import (
	"log"
	"os"

	"github.com/cupool/cupool"
)

func main() {
	d, err := cupool.Open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	p, err := cupool.New(cupool.Config{Driver: d})
	if err != nil {
		log.Fatal(err)
	}
	b, err := cupool.NewBuffer[float32](p, 1<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	b.Free()
	if err := p.Close(); err != nil {
		log.Fatal(err)
	}
}
