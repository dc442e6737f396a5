package cupool_test

import (
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/cupool/cupool"
)

// bump is an Allocator of one's own. It hands out one block from its start to
// its end, and starts again when nothing is live. FreePtr, Lookup and
// RecordStream are left out.
type bump struct {
	*cupool.Pool // for streams and the device
	mint         cupool.Mint
	memory       cupool.Block

	mu    sync.Mutex
	used  int64
	round uint64                  // counts the starts
	live  map[uint32]cupool.Block // by the number of the block in this round
}

func newBump(c *cupool.Pool, size int64) (*bump, error) {
	memory, err := c.Alloc(size, nil)
	return &bump{Pool: c, mint: cupool.NewMint(), memory: memory, live: map[uint32]cupool.Block{}}, err
}

func (a *bump) Alloc(size int64, s *cupool.Stream) (cupool.Block, error) {
	if s == nil {
		s = a.DefaultStream()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case s != a.DefaultStream(): // nothing here orders streams
		return cupool.Block{}, &cupool.BlockError{Op: "allocation", Size: size, Stream: s.Handle(), Err: cupool.ErrForeignStream}
	case size > a.memory.Size()-a.used:
		return cupool.Block{}, &cupool.OOMError{Device: a.Driver().Name(), Requested: size, Live: a.used}
	}
	b := a.mint.Block(a.memory.Ptr()+cupool.Ptr(a.used), size, a.round, uint32(a.used/512))
	a.live[uint32(a.used/512)] = b
	a.used += (size + 511) / 512 * 512
	return b, nil
}

func (a *bump) Free(b cupool.Block) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, round, ok := a.mint.Open(b)
	switch {
	case !ok:
		return &cupool.BlockError{Op: "free", Ptr: b.Ptr(), Size: b.Size(), Err: cupool.ErrForeignPointer}
	case round != a.round || a.live[id] != b:
		return &cupool.BlockError{Op: "free", Ptr: b.Ptr(), Size: b.Size(), Err: cupool.ErrDoubleFree}
	}
	if delete(a.live, id); len(a.live) == 0 {
		a.used, a.round = 0, a.round+1
	}
	return nil
}

// An Allocator of one's own makes its blocks with a Mint.
func ExampleMint() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	a, err := newBump(pool, 1<<20)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Free(a.memory)

	x, err := a.Alloc(1000, nil)
	if err != nil {
		log.Fatal(err)
	}
	y, err := a.Alloc(3000, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(int64(y.Ptr()-x.Ptr()), "bytes on")
	fmt.Println(x.Maker() == a.mint.Number(), a.memory.Maker() == a.mint.Number())
	fmt.Println(a.Free(x), a.Free(y))
	fmt.Println(errors.Is(a.Free(x), cupool.ErrDoubleFree))
	fmt.Println(errors.Is(a.Free(a.memory), cupool.ErrForeignPointer))
	// Output:
	// 1024 bytes on
	// true false
	// <nil> <nil>
	// true
	// true
}
