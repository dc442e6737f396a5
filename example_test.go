package cupool_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"runtime"
	"strings"

	"github.com/cupool/cupool"
)

// The zero Config is the embedded host device.
func ExampleNew() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	b, err := pool.Alloc(1000, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(b.Size(), "bytes, aligned:", b.Ptr()%512 == 0)
	if err := pool.Free(b); err != nil {
		log.Fatal(err)
	}
	// Output: 1000 bytes, aligned: true
}

func ExampleConfig() {
	device, err := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 30})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	pool, err := cupool.New(cupool.Config{
		Driver:   device,
		Fraction: 0.5,                    // of the device
		Limit:    400 << 20,              // and no more than this
		Backing:  cupool.BackingSegments, // as PyTorch does; BackingAuto prefers BackingVMM
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
		OnOutOfMemory: func(requested int64) bool {
			fmt.Println("asked for", requested>>20, "MiB")
			return false // nothing to give
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	_, err = pool.Alloc(500<<20, nil)
	fmt.Println(errors.Is(err, cupool.ErrOutOfMemory))
	// Output:
	// asked for 500 MiB
	// true
}

func ExampleStrategy() {
	for _, s := range []cupool.Strategy{cupool.BestFit, cupool.FirstFit, cupool.Segregated, cupool.PowerOfTwo} {
		pool, err := cupool.New(cupool.Config{Strategy: s})
		if err != nil {
			fmt.Println(err)
			return
		}
		b, _ := pool.Alloc(100_000, nil)
		fmt.Println(s, pool.Stats().LiveBytes)
		_ = pool.Free(b)
		_ = pool.Close()
	}
	// Output:
	// best-fit 100352
	// first-fit 100352
	// segregated 106496
	// power-of-two 131072
}

func ExampleBacking() {
	for b := range cupool.Backing(3) {
		fmt.Println(b, b == cupool.BackingAuto, b == cupool.BackingSegments, b == cupool.BackingVMM)
	}
	// Output:
	// auto true false false
	// segments false true false
	// vmm false false true
}

func ExampleConfigError() {
	_, err := cupool.New(cupool.Config{Fraction: 1.5})
	var bad *cupool.ConfigError
	if errors.As(err, &bad) {
		fmt.Println(bad.Field, bad.Reason)
	}
	fmt.Println(errors.Is(err, cupool.ErrInvalidConfig))
	// Output:
	// Fraction must be in (0, 1]; 0 means no limit
	// true
}

// Blocks are cut from segments, and merge again when they are freed.
func ExampleCaching() {
	var pool *cupool.Caching
	pool, err := cupool.New(cupool.Config{
		Backing:       cupool.BackingSegments,
		MagazineBytes: -1, // for placement that follows from the calls alone
	})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	a, err1 := pool.Alloc(2<<20, nil)
	b, err2 := pool.Alloc(3<<20, nil)
	if err := errors.Join(err1, err2); err != nil {
		log.Fatal(err)
	}
	fmt.Print(pool.Layout())
	if err := pool.Free(a); err != nil {
		log.Fatal(err)
	}
	fmt.Print(pool.Layout())

	// A block is found by any address inside it, and freed by the first.
	same, err := pool.Lookup(b.Ptr() + 1<<20)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(same == b)
	if err := pool.FreePtr(b.Ptr(), b.Size()); err != nil {
		log.Fatal(err)
	}
	fmt.Print(pool.Layout())
	fmt.Println("rules broken:", pool.Check())
	// Output:
	// 0 large: [Live 2M][Live 3M][Free 15M]
	// 0 large: [Free 2M][Live 3M][Free 15M]
	// true
	// 0 large: [Free 20M]
	// rules broken: <nil>
}

// Anything that takes an Allocator works with any pool.
func ExampleAllocator() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	fill := func(a cupool.Allocator, size int64, value byte) (cupool.Block, error) {
		s := a.DefaultStream()
		b, err := a.Alloc(size, s)
		if err != nil {
			return b, err
		}
		return b, s.Memset(b.Ptr(), value, size)
	}
	b, err := fill(pool, 4, 'x')
	if err != nil {
		log.Fatal(err)
	}
	data := make([]byte, 4)
	if err := pool.DefaultStream().CopyOut(data, b.Ptr()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(data), "on", pool.Driver().Name())
	if err := pool.Free(b); err != nil {
		log.Fatal(err)
	}
	// Output: xxxx on host (16 GiB)
}

func ExampleBlock() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	b, err := pool.Alloc(0, nil)
	fmt.Println(b, b.IsEmpty(), err)

	b, err = pool.Alloc(100, nil)
	if err != nil {
		log.Fatal(err)
	}
	var address cupool.Ptr = b.Ptr()
	fmt.Println(b.String() == fmt.Sprintf("%v (100 bytes)", address))
	if err := pool.Free(b); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 0x0 (0 bytes) true <nil>
	// true
}

// A wrong call says what is wrong and changes nothing.
func ExampleBlockError() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	other, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer other.Close()

	b, err := pool.Alloc(1000, nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = pool.Alloc(-1, nil)
	fmt.Println(errors.Is(err, cupool.ErrInvalidSize))
	fmt.Println(errors.Is(other.Free(b), cupool.ErrForeignPointer))
	fmt.Println(errors.Is(pool.RecordStream(b, other.DefaultStream()), cupool.ErrForeignStream))
	fmt.Println(errors.Is(pool.FreePtr(b.Ptr()+512, -1), cupool.ErrInteriorPointer))
	fmt.Println(errors.Is(pool.FreePtr(b.Ptr(), 2000), cupool.ErrSizeMismatch))

	err = pool.Free(b)
	fmt.Println(err)
	err = pool.Free(b)
	var wrong *cupool.BlockError
	fmt.Println(errors.As(err, &wrong) && wrong.Ptr == b.Ptr(), errors.Is(err, cupool.ErrDoubleFree))
	fmt.Println(errors.Is(pool.RecordStream(b, nil), cupool.ErrUseAfterFree))

	again, err := pool.Alloc(1000, nil) // the same memory
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(errors.Is(pool.Free(b), cupool.ErrStaleBlock))
	fmt.Println(pool.Free(again))
	// Output:
	// true
	// true
	// true
	// true
	// true
	// <nil>
	// true true
	// true
	// true
	// <nil>
}

// An allocation that fails has tried everything, and says how things stand.
// The pool goes on working.
func ExampleOOMError() {
	pool, err := cupool.New(cupool.Config{Limit: 64 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	b, err := pool.Alloc(48<<20, nil)
	if err != nil {
		log.Fatal(err)
	}

	_, err = pool.Alloc(32<<20, nil)
	var oom *cupool.OOMError
	if errors.As(err, &oom) {
		fmt.Println(oom.Requested>>20, "MiB wanted,", oom.Live>>20, "MiB live of", oom.Limit>>20)
		fmt.Println(oom.Hint)
	}
	if err := pool.Free(b); err != nil {
		log.Fatal(err)
	}
	b, err = pool.Alloc(32<<20, nil)
	fmt.Println(err)
	if err := pool.Free(b); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 32 MiB wanted, 48 MiB live of 64
	// the device has the memory: raise Limit or Fraction
	// <nil>
}

// Close names what was forgotten, and where it came from.
func ExampleLeakError() {
	pool, err := cupool.New(cupool.Config{RecordStacks: true})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Alloc(1000, nil); err != nil {
		log.Fatal(err)
	}
	err = pool.Close()
	var leaked *cupool.LeakError
	if errors.As(err, &leaked) {
		var first cupool.Leak = leaked.Leaks[0]
		fmt.Println(len(leaked.Leaks), "block of", first.Size, "bytes")
		fmt.Println(strings.Contains(first.Stack, "ExampleLeakError"))
	}
	fmt.Println(errors.Is(pool.Close(), cupool.ErrClosed))
	// Output:
	// 1 block of 1000 bytes
	// true
	// true
}

// Memory of one stream is used on another.
func ExampleCaching_RecordStream() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	side, err := pool.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	b, err := pool.Alloc(1<<20, nil)
	if err != nil {
		log.Fatal(err)
	}

	gate := make(chan struct{})
	if err := errors.Join(
		side.Launch(func() { <-gate }), // work that takes its time
		side.Memset(b.Ptr(), 1, b.Size()),
		pool.RecordStream(b, side),
		pool.Free(b), // at once: the memory waits for side
	); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().PendingBytes, "bytes pending")
	close(gate)
	if err := side.Sync(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().PendingBytes, "bytes pending")
	// Output:
	// 1048576 bytes pending
	// 0 bytes pending
}

// FreeOn says at the end which stream used the memory last.
func ExampleCaching_FreeOn() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	consumer, err := pool.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	b, err := pool.Alloc(1<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := consumer.Memset(b.Ptr(), 0, b.Size()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.FreeOn(b, consumer))
	// Output: <nil>
}

// The pool looks for finished work when it runs out of cached memory; a
// program may do so whenever it suits.
func ExampleCaching_ProcessDeferred() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	side, err := pool.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	for range 100 {
		b, err := pool.Alloc(4096, nil)
		if err != nil {
			log.Fatal(err)
		}
		if err := pool.FreeOn(b, side); err != nil {
			log.Fatal(err)
		}
	}
	freed, err := pool.ProcessDeferred()
	fmt.Println(freed, err)
	// Output: 100 <nil>
}

// Handles that are lost are freed by the garbage collector: FreeLater takes
// no lock and calls no device, so a cleanup may use it.
func ExampleCaching_FreeLater() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	type weights struct{ block cupool.Block }
	b, err := pool.Alloc(1<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	w := &weights{b}
	runtime.AddCleanup(w, pool.FreeLater, b)
	// From here on nobody needs to free w. The same by hand:
	pool.FreeLater(w.block)
	if _, err := pool.ProcessDeferred(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().LiveBytes, "bytes live")
	// Output: 0 bytes live
}

// Trim gives cached memory back to the device, down to a reserve.
func ExampleCaching_Trim() {
	pool, err := cupool.New(cupool.Config{Backing: cupool.BackingSegments})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	a, err1 := pool.Alloc(10<<20, nil)
	b, err2 := pool.Alloc(30<<20, nil)
	if err := errors.Join(err1, err2, pool.Free(a), pool.Free(b)); err != nil {
		log.Fatal(err)
	}
	released, err := pool.Trim(10 << 20)
	fmt.Println(released>>20, "MiB given back,", err)
	fmt.Println(pool.Stats().All.ReservedBytes.Current>>20, "MiB reserved")
	// Output:
	// 30 MiB given back, <nil>
	// 10 MiB reserved
}

func ExampleCaching_EmptyCache() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pool.Reserve(30<<20, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.EmptyCache())
	fmt.Println(pool.Stats().All.ReservedBytes.Current, "bytes reserved")
	// Output:
	// <nil>
	// 0 bytes reserved
}

// Reserve makes the first step of a program as fast as the others.
func ExampleCaching_Reserve() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pool.Reserve(64<<20, nil); err != nil {
		log.Fatal(err)
	}
	misses := pool.Stats().Misses
	b, err := pool.Alloc(64<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().Misses-misses, "misses")
	if err := pool.Free(b); err != nil {
		log.Fatal(err)
	}
	// Output: 0 misses
}

func ExampleCaching_WriteStats() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	var table strings.Builder // or os.Stderr
	if err := pool.WriteStats(&table); err != nil {
		log.Fatal(err)
	}
	title, _, _ := strings.Cut(table.String(), "\n")
	fmt.Println(title)
	// Output: cupool on host (16 GiB)
}

func ExampleStats() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	for range 100 {
		b, err := pool.Alloc(1000, nil)
		if err != nil {
			log.Fatal(err)
		}
		if err := pool.Free(b); err != nil {
			log.Fatal(err)
		}
	}

	var st cupool.Stats = pool.Stats()
	fmt.Printf("%.0f %% hits, fragmentation at most 1: %v\n", 100*st.HitRatio(), st.Fragmentation() <= 1)
	var p cupool.PoolStats = st.Small // up to Config.SmallLimit
	var blocks cupool.Stat = p.Allocation
	fmt.Println(blocks.Allocated, "allocated,", blocks.Freed, "freed,", blocks.Current, "live")

	pool.ResetPeak()
	pool.ResetAccumulated()
	fmt.Println(pool.Stats().Small.Allocation.Allocated)
	if err := st.Write(io.Discard, "before the reset"); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 99 % hits, fragmentation at most 1: true
	// 100 allocated, 100 freed, 0 live
	// 0
}

// Work on a stream runs asynchronously and in order. The host device's
// streams run Go functions too, where a GPU has kernels.
func ExampleStream() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	s, err := pool.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	a, err1 := pool.Alloc(5, s)
	b, err2 := pool.Alloc(5, s)
	data := make([]byte, 5)
	if err := errors.Join(err1, err2,
		s.CopyIn(a.Ptr(), []byte("hello")),
		s.Memset(a.Ptr(), 'j', 1),
		s.Copy(b.Ptr(), a.Ptr(), 5),
		s.CopyOut(data, b.Ptr()), // waits
	); err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(data))

	if _, ok := pool.Driver().(cupool.Launcher); ok {
		if err := s.Launch(func() { fmt.Println("on the stream") }); err != nil {
			log.Fatal(err)
		}
	}
	if err := errors.Join(s.Sync(), pool.Free(a), pool.Free(b), s.Close()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// jello
	// on the stream
}

// A function that fails on the device loses it for good.
func ExampleStream_Launch() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	s := pool.DefaultStream()
	if err := s.Launch(func() { panic("illegal address") }); err != nil {
		log.Fatal(err)
	}
	fmt.Println(errors.Is(s.Sync(), cupool.ErrDeviceLost))
	_, err = pool.Alloc(1, nil)
	fmt.Println(errors.Is(err, cupool.ErrDeviceLost))
	// Output:
	// true
	// true
}

// One stream waits for another without the host waiting for either. The
// pool understands the order: what the event proves needs no query.
func ExampleStream_Wait() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	load, err1 := pool.NewStream()
	compute, err2 := pool.NewStream()
	if err := errors.Join(err1, err2); err != nil {
		log.Fatal(err)
	}
	b, err := pool.Alloc(1, load)
	if err != nil {
		log.Fatal(err)
	}
	if err := load.CopyIn(b.Ptr(), []byte{42}); err != nil {
		log.Fatal(err)
	}
	loaded, err := load.Record()
	if err != nil {
		log.Fatal(err)
	}
	if err := compute.Wait(loaded); err != nil {
		log.Fatal(err)
	}
	got := make([]byte, 1)
	if err := compute.CopyOut(got, b.Ptr()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(got[0])
	if err := errors.Join(
		pool.FreeOn(b, compute),
		load.WaitStream(compute), // the same as Record and Wait
		loaded.Close(),
	); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().PendingBytes, "bytes pending")
	// Output:
	// 42
	// 0 bytes pending
}

func ExampleEvent() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	s := pool.DefaultStream()
	gate := make(chan struct{})
	if err := s.Launch(func() { <-gate }); err != nil {
		log.Fatal(err)
	}
	var e *cupool.Event
	if e, err = s.Record(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.Done())
	close(gate)
	fmt.Println(e.Sync())
	fmt.Println(e.Done())
	fmt.Println(e.Close())
	// Output:
	// false <nil>
	// <nil>
	// true <nil>
	// <nil>
}

// strict is a device that knows its own streams.
type strict struct{ cupool.Driver }

func (strict) OwnsStream(h cupool.StreamHandle) error {
	if h > 100 {
		return errors.New("no such stream here")
	}
	return nil
}

// Streams that another library made are used as they are, and stay its own.
func ExampleCaching_AdoptStream() {
	host, err := cupool.OpenHost(cupool.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer host.Close()
	var device cupool.Driver = strict{host}
	_, knows := device.(cupool.StreamOwner)
	pool, err := cupool.New(cupool.Config{Driver: device})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	theirs, err := device.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	s, err := pool.AdoptStream(theirs)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Handle() == theirs, knows)
	_, err = pool.AdoptStream(101)
	fmt.Println(errors.Is(err, cupool.ErrForeignStream))
	if err := errors.Join(s.Close(), device.DestroyStream(theirs)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// true true
	// true
}

// chatty is a device that tells when it is asked for memory.
type chatty struct{ cupool.Driver }

func (d chatty) MemAlloc(size int64) (cupool.Ptr, error) {
	fmt.Println("segment of", size>>20, "MiB")
	return d.Driver.MemAlloc(size)
}

// A Driver may be wrapped. Of its optional parts only those are seen that
// the wrapper has: this one hides VirtualMemory.
func ExampleDriver() {
	host, err := cupool.OpenHost(cupool.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer host.Close()
	pool, err := cupool.New(cupool.Config{Driver: chatty{host}})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	for range 3 {
		b, err := pool.Alloc(5<<20, nil)
		if err != nil {
			log.Fatal(err)
		}
		if err := pool.Free(b); err != nil {
			log.Fatal(err)
		}
	}
	// Output: segment of 20 MiB
}

// Events are seldom needed by hand, but a Driver has them.
func ExampleEventHandle() {
	device, err := cupool.OpenHost(cupool.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	var s cupool.StreamHandle // the default stream
	var e cupool.EventHandle
	if e, err = device.NewEvent(); err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(device.RecordEvent(e, s), device.SyncEvent(e)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(device.QueryEvent(e))
	// Output: true <nil>
}

func ExampleOpen() {
	for _, name := range []string{"host", "host:64MiB", "quantum"} {
		device, err := cupool.Open(name)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(device.Name())
		if err := device.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// host (16 GiB)
	// host (64 MiB)
	// cupool: invalid configuration: device = quantum: must be "host", "host:BYTES", "cuda" or "cuda:ORDINAL"
}

func ExampleOpenHost() {
	device, err := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 30})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	free, total, err := device.MemInfo()
	fmt.Println(free>>20, total>>20, err)
	// Output: 1024 1024 <nil>
}

func ExampleParseBytes() {
	for _, s := range []string{"4096", "512K", "1.5GiB"} {
		n, err := cupool.ParseBytes(s)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(n)
	}
	// Output:
	// 4096
	// 524288
	// 1610612736
}

// A Buffer is an array in device memory.
func ExampleBuffer() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	a, err := cupool.NewBuffer[float32](pool, 4, nil)
	if err != nil {
		log.Fatal(err)
	}
	b, err := cupool.BufferFrom(pool, []float32{1, 2, 3, 4}, nil)
	if err != nil {
		log.Fatal(err)
	}
	middle, err := b.View(1, 3)
	if err != nil {
		log.Fatal(err)
	}
	host := make([]float32, 4)
	if err := errors.Join(
		middle.CopyFrom([]float32{20, 30}),
		a.Memset(0),
		a.CopyBuffer(b),
		a.CopyTo(host),
	); err != nil {
		log.Fatal(err)
	}
	fmt.Println(host, a.Len(), a.Bytes())

	_, err = b.View(2, 9)
	fmt.Println(errors.Is(err, cupool.ErrInvalidRange))
	if err := errors.Join(a.Free(), b.Free()); err != nil {
		log.Fatal(err)
	}
	_, err = middle.Slice()
	fmt.Println(errors.Is(err, cupool.ErrUseAfterFree))
	_, err = cupool.NewBuffer[*int](pool, 1, nil)
	fmt.Println(errors.Is(err, cupool.ErrNotSupported))
	// Output:
	// [1 20 30 4] 4 16
	// true
	// true
	// true
}

// On gives a buffer to another stream, which may still be at work when the
// buffer is freed.
func ExampleBuffer_On() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	side, err := pool.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	b, err := cupool.BufferFrom(pool, []int64{7}, nil)
	if err != nil {
		log.Fatal(err)
	}
	there, err := b.On(side)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(there.Ptr() == b.Ptr(), there.Block() == b.Block(), there.Stream() == side)
	if err := side.WaitStream(b.Stream()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(there.Slice())
	fmt.Println(b.Free())
	// Output:
	// true true true
	// [7] <nil>
	// <nil>
}

// WithBuffer frees the buffer however the function ends.
func ExampleWithBuffer() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	err = cupool.WithBuffer(pool, 3, nil, func(b *cupool.Buffer[int32]) error {
		if err := b.CopyFrom([]int32{1, 2, 3}); err != nil {
			return err
		}
		values, err := b.Slice()
		fmt.Println(values)
		return err
	})
	fmt.Println(err, pool.Close())
	// Output:
	// [1 2 3]
	// <nil> <nil>
}
