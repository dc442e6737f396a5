package cupool_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/cupool/cupool"
)

// CUDA's own pools behind the same interface, here with a pool of its own. The
// host device has such pools too.
func ExampleNewNative() {
	c, err := cupool.New(cupool.Config{}) // whose streams are used
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	n, err := cupool.NewNative(c, cupool.NativeConfig{Pool: &cupool.NativePoolConfig{MaxSize: 1 << 30}})
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

func ExampleNative_SetAttribute() {
	c, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	n, err := cupool.NewNative(c, cupool.NativeConfig{Pool: &cupool.NativePoolConfig{}, ReleaseThreshold: 32 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	// Rather grow than make one stream wait for another.
	if err := n.SetAttribute(cupool.PoolReuseInternalDependency, 0); err != nil {
		log.Fatal(err)
	}
	b, err := n.Alloc(64<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := n.Free(b); err != nil {
		log.Fatal(err)
	}
	report := func(n *cupool.Native) (cupool.NativeStats, error) { return n.Stats() }
	st, err := report(n)
	fmt.Println(st.Used>>20, st.Reserved>>20, err)
	if err := errors.Join(n.DefaultStream().Sync(), n.TrimTo(0), n.ResetPeak()); err != nil {
		log.Fatal(err)
	}
	high, err := n.Attribute(cupool.PoolReservedHigh)
	fmt.Println(high, err)
	a, err := n.Access(0)
	fmt.Println(a == cupool.ReadWriteAccess, err, n.SetAccess(0, a), n.Pool() != 0, n.Driver() == c.Driver())
	// Output:
	// 0 64 <nil>
	// 0 <nil>
	// true <nil> <nil> true true
}
