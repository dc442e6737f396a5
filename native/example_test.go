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
