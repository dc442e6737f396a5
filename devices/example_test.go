package devices_test

import (
	"errors"
	"fmt"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/devices"
)

// Two devices, a copy from one to the other in the order of two streams, and both
// blocks freed at once.
func Example() {
	set, _ := devices.Open(devices.Config{}, "host:1GiB", "host:1GiB")
	defer set.Close()
	from, _ := set.Pool(0).NewStream()
	to, _ := set.Pool(1).NewStream()

	src, _ := set.Pool(0).Alloc(1024, from)
	_ = from.CopyIn(src.Ptr(), []byte("hello"))
	dst, _ := set.Pool(1).Alloc(1024, to)
	_ = set.Copy(dst.Ptr(), src.Ptr(), 1024, to, from)
	_ = set.Free(src)

	got := make([]byte, 5)
	_ = to.CopyOut(got, dst.Ptr())
	_ = set.Free(dst)
	fmt.Printf("%s, live: %d bytes\n", got, set.Stats().Sum.LiveBytes)
	// Output: hello, live: 0 bytes
}

// All GPUs of the computer, each with a limit of its own.
func ExampleOpenAll() {
	set, err := devices.OpenAll(devices.Config{
		Pool: cupool.Config{Backing: cupool.BackingVMM},
		Each: func(i int, pool *cupool.Config) {
			if i == 0 { // which has the display, too
				pool.Fraction = 0.8
			}
		},
	})
	if errors.Is(err, cupool.ErrNotSupported) {
		return // no GPU
	}
	defer set.Close()
	for i := range set.Len() {
		fmt.Println(i, set.Pool(i).Driver().Name())
	}
	for _, p := range set.Unreachable() {
		fmt.Printf("%d does not reach %d: %v\n", p.From, p.To, p.Err)
	}
}

func ExampleSet_Lookup() {
	set, _ := devices.Open(devices.Config{}, "host:1GiB", "host:1GiB")
	defer set.Close()
	b, _ := set.Pool(1).Alloc(4096, nil)
	at, _ := set.Lookup(b.Ptr() + 100)
	fmt.Println(at.Device, at.Block == b, at.Pool == set.Pool(1))
	fmt.Println(set.FreePtr(b.Ptr(), 4096))
	// Output:
	// 1 true true
	// <nil>
}

// A device works on the memory of another one, which is freed behind that work.
func ExampleSet_FreeOn() {
	set, _ := devices.Open(devices.Config{}, "host:1GiB", "host:1GiB")
	defer set.Close()
	s, _ := set.Pool(1).NewStream()
	b, _ := set.Pool(0).Alloc(4096, nil)
	_ = s.WaitStream(set.Pool(0).DefaultStream()) // the block's earlier uses come first
	_ = s.Memset(b.Ptr(), 1, 4096)
	fmt.Println(set.RecordStream(b, s)) // what it has been given until now
	_ = s.Memset(b.Ptr(), 2, 4096)
	fmt.Println(set.FreeOn(b, s))
	// Output:
	// <nil>
	// <nil>
}

// One more pool, of memory that all devices use. With GPUs it would be
// cupool.Open("cuda:0,pinned") or "cuda:0,managed".
func ExampleSet_Share() {
	set, _ := devices.Open(devices.Config{}, "host:1GiB", "host:1GiB")
	memory, _ := cupool.Open("host:1GiB")
	pool, _ := set.Share(memory, cupool.Config{})
	b, _ := pool.Alloc(4096, nil)
	for _, c := range set.Pools() {
		s, _ := c.NewStream()
		_ = s.WaitStream(pool.DefaultStream())
		_ = s.Memset(b.Ptr(), 1, 4096)
		_ = set.RecordStream(b, s)
	}
	_ = set.Free(b)
	fmt.Println(len(set.Shared()), set.Close(), memory.Close())
	// Output: 1 <nil> <nil>
}

func ExampleSet_Stats() {
	set, _ := devices.Open(devices.Config{}, "host:1GiB", "host:1GiB")
	defer set.Close()
	a, _ := set.Pool(0).Alloc(1<<20, nil)
	b, _ := set.Pool(1).Alloc(2<<20, nil)
	st := set.Stats()
	fmt.Println(st.Devices[0].LiveBytes, st.Devices[1].LiveBytes, len(st.Shared), st.Sum.LiveBytes)
	_, _ = set.Free(a), set.Free(b)
	// Output: 1048576 2097152 0 3145728
}
