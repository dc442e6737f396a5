package native_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/native"
)

// One process makes a pool and sends it with a block, the other one uses the
// block. Both are this process here, which the host device allows.
func ExampleAllocator_Send() {
	sender, receiver := socketPair()
	defer sender.Close()
	defer receiver.Close()
	c, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	n, err := native.New(c, native.Config{Pool: &cuda.NativePoolConfig{Shareable: true}})
	if err != nil {
		log.Fatal(err)
	}
	b, err := n.Alloc(1000, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(c.DefaultStream().CopyIn(b.Ptr(), []byte("hello")), c.DefaultStream().Sync(), n.Send(sender)); err != nil {
		log.Fatal(err)
	}
	pointer, err := n.ExportBlock(b) // after the pool; send it, and the size, as they are
	if err != nil {
		log.Fatal(err)
	}

	other, err := native.Receive(c, receiver)
	if err != nil {
		log.Fatal(err)
	}
	x, err := other.ImportBlock(pointer, 1000, nil)
	if err != nil {
		log.Fatal(err)
	}
	got := make([]byte, 5)
	if err := c.DefaultStream().CopyOut(got, x.Ptr()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(got), x.Ptr() != b.Ptr())
	// The one who imported a block frees it first.
	if err := errors.Join(other.Free(x), other.Close(), n.Free(b), n.Close()); err != nil {
		log.Fatal(err)
	}
	// Output: hello true
}
