package native_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/native"
)

// CUDA's own pools behind the same interface, here with a pool of its own. The
// host device has such pools too.
func ExampleNew() {
	c, err := cupool.New(cupool.Config{}) // whose streams are used
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	n, err := native.New(c, native.Config{Pool: &cuda.NativePoolConfig{MaxSize: 1 << 30}})
	if errors.Is(err, cupool.ErrNotSupported) {
		log.Fatal("this device or driver has none: ", err)
	}
	if err != nil {
		log.Fatal(err)
	}
	s, err := n.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	b, err := n.Alloc(64<<20, n.DefaultStream())
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(s.Memset(b.Ptr(), 1, b.Size()), n.RecordStream(b, s)); err != nil {
		log.Fatal(err)
	}
	found, err := n.Lookup(b.Ptr() + 100)
	fmt.Println(found == b, err)
	if err := n.Free(b); err != nil { // s may still be writing
		log.Fatal(err)
	}
	fmt.Println(errors.Is(n.FreePtr(b.Ptr(), -1), cupool.ErrDoubleFree))
	if err := errors.Join(s.Close(), n.Close()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// true <nil>
	// true
}

func ExampleAllocator_SetAttribute() {
	c, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	n, err := native.New(c, native.Config{Pool: &cuda.NativePoolConfig{}, ReleaseThreshold: 32 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	// Rather grow than make one stream wait for another.
	if err := n.SetAttribute(cuda.PoolReuseInternalDependency, 0); err != nil {
		log.Fatal(err)
	}
	a, err1 := n.Alloc(32<<20, nil)
	b, err2 := n.Alloc(32<<20, nil)
	if err := errors.Join(err1, err2, n.Free(a), n.Free(b)); err != nil {
		log.Fatal(err)
	}
	st, err := n.Stats()
	fmt.Println(st.Used>>20, st.Reserved>>20, err)
	err = n.DefaultStream().Sync() // gives back what exceeds the threshold
	kept, err1 := n.Attribute(cuda.PoolReservedCurrent)
	fmt.Println(kept>>20, errors.Join(err, err1))
	if err := errors.Join(n.TrimTo(0), n.ResetPeak()); err != nil {
		log.Fatal(err)
	}
	high, err := n.Attribute(cuda.PoolReservedHigh)
	fmt.Println(high, err)
	// Output:
	// 0 64 <nil>
	// 32 <nil>
	// 0 <nil>
}

// What the program asked for, and what the pool made of it, in whole pages.
func ExampleStats() {
	c, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	n, err := native.New(c, native.Config{Pool: &cuda.NativePoolConfig{MaxSize: 8 << 20}})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	a, err1 := n.Alloc(1<<20, nil)
	b, err2 := n.Alloc(2<<20, nil)
	if err := errors.Join(err1, err2, n.Free(a)); err != nil {
		log.Fatal(err)
	}
	_, err = n.Alloc(16<<20, nil)
	fmt.Println(errors.Is(err, cupool.ErrOutOfMemory))
	st, err := n.Stats()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("live:", st.LiveBlocks, "blocks of", st.LiveBytes>>20, "MiB, at most", st.PeakBytes>>20)
	fmt.Println("calls:", st.Allocations, st.Frees, "made room for:", st.Retries, "failed:", st.OOMs)
	fmt.Println("the pool's MiB:", st.Used>>20, "used, at most", st.UsedHigh>>20, "and at most", st.ReservedHigh>>20, "reserved")
	fmt.Println(st.Reserved >= st.Used, n.Free(b))
	// Output:
	// true
	// live: 1 blocks of 2 MiB, at most 3
	// calls: 2 1 made room for: 0 failed: 1
	// the pool's MiB: 2 used, at most 3 and at most 3 reserved
	// true <nil>
}
