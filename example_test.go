package cupool_test

import (
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/pprof/profile"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/snapshot"
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

// Blocks are cut from segments, and merge again when they are freed.
func ExamplePool() {
	var pool *cupool.Pool
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
	fmt.Print(pool.Snapshot().Layout())
	if err := pool.Free(a); err != nil {
		log.Fatal(err)
	}
	fmt.Print(pool.Snapshot().Layout())

	// A block is found by any address inside it, and freed by the first.
	same, err := pool.Lookup(b.Ptr() + 1<<20)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(same == b)
	if err := pool.FreePtr(b.Ptr(), b.Size()); err != nil {
		log.Fatal(err)
	}
	fmt.Print(pool.Snapshot().Layout())
	fmt.Println("rules broken:", pool.Check())
	// Output:
	// 0 large: [Live 2M][Live 3M][Free 15M]
	// 0 large: [Free 2M][Live 3M][Free 15M]
	// true
	// 0 large: [Free 20M]
	// rules broken: <nil>
}

// README begins with this program: TestReadme compares the two.
func Example() {
	pool, err := cupool.New(cupool.Config{}) // the device: a part of this computer's memory
	if err != nil {
		log.Fatal(err)
	}
	for range 1000 {
		x, err := cupool.BufferFrom(pool, []float32{1, 2, 3}, nil) // an array on the device
		if err != nil {
			log.Fatal(err)
		}
		if err := x.Free(); err != nil { // the next array gets this memory
			log.Fatal(err)
		}
	}
	s := pool.Stats()
	fmt.Println(s.Hits, "from the pool,", s.Grown, "from the device")
	// Output: 999 from the pool, 1 from the device
}

// strict is a device that knows its own streams.
type strict struct{ cupool.Driver }

func (strict) OwnsStream(h cupool.StreamHandle) error {
	if h > 100 {
		return fmt.Errorf("no such stream here: %w", cupool.ErrForeignStream)
	}
	return nil
}

// Streams that another library made are used as they are, and stay its own.
func ExamplePool_AdoptStream() {
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

// A program that writes behind the end of a block is told which one it is.
func ExampleSanitizers() {
	pool, err := cupool.New(cupool.Config{
		Sanitize:     cupool.Sanitizers{Canaries: 64, Poison: true, Wait: true},
		OnCorruption: func(e *cupool.CorruptionError) { fmt.Println("found:", e.Bytes, "bytes at offset", e.Offset) },
	})
	if err != nil {
		log.Fatal(err)
	}
	b, err := pool.Alloc(1000, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := pool.DefaultStream().Memset(b.Ptr(), 1, 1004); err != nil {
		log.Fatal(err)
	}
	err = pool.Free(b)
	var bad *cupool.CorruptionError
	if errors.As(err, &bad) {
		fmt.Println("overrun of a block of", bad.Size, "bytes, after a free:", bad.AfterFree)
	}
	fmt.Println(errors.Is(err, cupool.ErrCorrupted))
	fmt.Println(errors.Is(pool.Close(), cupool.ErrCorrupted)) // for programs that drop the error of Free
	// Output:
	// found: 4 bytes at offset 1000
	// overrun of a block of 1000 bytes, after a free: false
	// true
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
		fmt.Println(oom.Reason, oom.Settings[0])
		fmt.Println(oom.Table[0].Live == oom.Live, pool.LastOOM() == oom)
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
	// limit Limit: 80<<20, or CUPOOL_LIMIT=80M
	// true true
	// <nil>
}

// Close names what was forgotten, and where it came from.
func ExampleLeakError() {
	pool, err := cupool.New(cupool.Config{History: &cupool.History{SampleBytes: 1}})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Alloc(1000, nil); err != nil {
		log.Fatal(err)
	}
	if live := pool.Leaks(); live != nil { // at any time
		var largest cupool.LeakGroup = live.Groups()[0]
		fmt.Println(largest.Blocks, "block in the largest group")
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
	// 1 block in the largest group
	// 1 block of 1000 bytes
	// true
	// true
}

// A program bounds how long calls wait for a device that hangs. The error names
// the stream, and the call can be made again.
func ExampleWaitError() {
	pool, err := cupool.New(cupool.Config{WaitTimeout: 10 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	stream, err := pool.NewStream()
	if err != nil {
		panic(err)
	}
	done := make(chan struct{})
	if err := stream.Launch(func() { <-done }); err != nil { // work that hangs
		panic(err)
	}
	var late *cupool.WaitError
	if err := stream.Close(); errors.As(err, &late) {
		fmt.Println("the stream is late:", late.Stream == stream.Handle(), errors.Is(err, context.DeadlineExceeded))
	}
	close(done) // it goes on after all
	for _, end := range []func() error{stream.Sync, stream.Close, pool.Close} {
		err := end()
		for errors.As(err, &late) {
			err = end()
		}
		fmt.Println(err)
	}
	// Output:
	// the stream is late: true true
	// <nil>
	// <nil>
	// <nil>
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
	_, err = middle.ToHost()
	fmt.Println(errors.Is(err, cupool.ErrUseAfterFree))
	_, err = cupool.NewBuffer[*int](pool, 1, nil)
	fmt.Println(errors.Is(err, cupool.ErrNotSupported))
	// Output:
	// [1 20 30 4] 4 16
	// true
	// true
	// true
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
		values, err := b.ToHost()
		fmt.Println(values)
		return err
	})
	fmt.Println(err, pool.Close())
	// Output:
	// [1 2 3]
	// <nil> <nil>
}

// Trim gives cached memory back to the device, down to a reserve.
func ExamplePool_Trim() {
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

func ExamplePool_EmptyCache() {
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
func ExamplePool_Reserve() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pool.Reserve(64<<20, nil); err != nil {
		log.Fatal(err)
	}
	before := pool.Stats()
	b, err := pool.Alloc(64<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().Hits-before.Hits, "hit")
	if err := pool.Free(b); err != nil {
		log.Fatal(err)
	}
	// Output: 1 hit
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

	pool.ResetPeak() // what follows has peaks of its own
	fmt.Println(pool.Stats().All.RequestedBytes.Peak <= 1000)
	table := st.String() // for people
	fmt.Println(table[:strings.Index(table, "\n")])
	// Output:
	// 99 % hits, fragmentation at most 1: true
	// 100 allocated, 100 freed, 0 live
	// true
	// cupool on host (16 GiB)
}

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

// A history is switched on for a while, and off again.
func ExamplePool_StartHistory() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	if err := pool.StartHistory(cupool.History{Events: 1000, SampleBytes: 1}); err != nil { // everything
		fmt.Println(err)
		return
	}
	b, err := pool.WithLabel("weights").Alloc(1<<20, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = pool.Free(b)
	pool.StopHistory()
	for _, e := range pool.Snapshot().Events {
		if e.Label != "" {
			fmt.Println(e.Kind, e.Size, e.Label)
		}
	}
	// Output:
	// alloc 1048576 weights
	// free_requested 1048576 weights
	// free_completed 1048576 weights
}

// A profile of live device memory, for "go tool pprof -top device.pb.gz".
func ExamplePool_Snapshot_profile() {
	pool, err := cupool.New(cupool.Config{History: &cupool.History{SampleBytes: 1}})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	weights, err := pool.Alloc(3<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Free(weights)

	f, err := os.CreateTemp("", "device*.pb.gz")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := snapshot.WriteProfile(f, pool.Snapshot()); err != nil {
		log.Fatal(err)
	}

	if _, err := f.Seek(0, 0); err != nil {
		log.Fatal(err)
	}
	p, err := profile.Parse(f)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range p.Sample {
		if live := s.Value[3]; live > 0 {
			fmt.Println(s.Location[0].Line[0].Function.Name, live>>20, "MiB in use")
		}
	}
	// Output: github.com/cupool/cupool_test.ExamplePool_Snapshot_profile 3 MiB in use
}

// published is what /debug/vars shows under "cupool", by the name of an allocator.
var published = expvar.NewMap("cupool")

// Programs that import expvar serve what is published at /debug/vars, as JSON.
func ExamplePool_Stats_expvar() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	published.Set("train", expvar.Func(func() any { return pool.Stats() }))

	x, err := cupool.NewBuffer[float32](pool, 1_000_000, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Free()

	var got struct {
		LiveBytes int64
		Large     struct{ Allocation struct{ Current, Peak int64 } }
	}
	if err := json.Unmarshal([]byte(published.Get("train").String()), &got); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%+v\n", got)
	// Output:
	// {LiveBytes:4000256 Large:{Allocation:{Current:1 Peak:1}}}
}

func ExampleDivisions() {
	d, err := cupool.ParseDivisions("[64:1,128:2,>:4]") // as PyTorch's roundup_power2_divisions
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d == cupool.Divisions{1, 1, 1, 1, 1, 1, 1, 2, 4, 4, 4, 4, 4, 4, 4, 4})
	pool, err := cupool.New(cupool.Config{Divisions: cupool.SameDivisions(4)})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	b, err := pool.Alloc(1200<<10, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().LiveBytes>>10, "KiB") // 1, 1.25, 1.5 or 1.75 MiB
	if err := pool.Free(b); err != nil {
		log.Fatal(err)
	}
	// Output:
	// true
	// 1280 KiB
}

// Each part of a program has a name of its own.
func ExamplePool_WithLabel() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	encoder := pool.WithLabel("encoder") // an Allocator, for an Engine too
	w, err := cupool.NewBuffer[float32](encoder, 1<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	tmp, err := cupool.NewBuffer[float32](encoder, 1<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(w.Free(), tmp.Free()); err != nil {
		log.Fatal(err)
	}
	for _, l := range pool.Stats().Labels {
		var now cupool.LabelStats = l
		fmt.Println(now.Label, now.Blocks.Current, "blocks; at most", now.Bytes.Peak>>20, "MiB")
	}
	// Output: encoder 0 blocks; at most 8 MiB
}

// What a part of a step holds.
func ExampleEngine_ScopeLabeled() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	forward, err := eng.ScopeLabeled("forward")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := eng.Empty(tensor.Float32, 1024); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().Labels[0].Label, pool.Stats().Labels[0].Bytes.Current, "bytes")
	if err := forward.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().Labels[0].Label, pool.Stats().Labels[0].Bytes.Current, "bytes")
	// Output:
	// forward 4096 bytes
	// forward 0 bytes
}

// What holds the memory, for people or as JSON.
func ExamplePool_Snapshot() {
	pool, err := cupool.New(cupool.Config{Backing: cupool.BackingSegments})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	b, err := pool.WithLabel("weights").Alloc(3<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Free(b)
	var now cupool.Snapshot = pool.Snapshot() // json.Marshal prints it
	for _, seg := range now.Segments {
		var seg snapshot.Segment = seg
		fmt.Println(seg.Type, "segment of", seg.Size>>20, "MiB")
		for _, b := range seg.Blocks {
			var b snapshot.Block = b
			fmt.Println(b.State, b.Size>>20, "MiB", b.Label)
		}
	}
	// Output:
	// large segment of 20 MiB
	// live 3 MiB weights
	// free 17 MiB
}

// A program that lets the environment configure its allocator.
func ExampleConfigFromEnv() {
	os.Setenv(cupool.AllocConf, "max_split_size_mb:256,garbage_collection_threshold:0.8")
	os.Setenv("CUPOOL_LIMIT", "1GiB")
	defer os.Unsetenv(cupool.AllocConf)
	defer os.Unsetenv("CUPOOL_LIMIT")

	fromFlag, err := cupool.ParseAllocConf("garbage_collection_threshold:0.5") // comes first
	if err != nil {
		log.Fatal(err)
	}
	cfg, settings, err := cupool.ConfigFromEnv(fromFlag)
	if err != nil {
		log.Fatal(err)
	}
	var s cupool.Setting
	for _, s = range settings {
		switch s.Source {
		case cupool.SourceDefault:
		case cupool.SourceProgram:
			fmt.Println(s.Field, "=", s.Value, "of a flag, not", s.Unused)
		default:
			fmt.Println(s.Field, "=", s.Value, "of", s.Source)
		}
	}
	pool, err := cupool.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	os.Setenv("CUPOOL_LIMIT", "lots")
	_, _, err = cupool.ConfigFromEnv(cupool.Config{})
	fmt.Println(err)
	// Output:
	// Limit = 1G of CUPOOL_LIMIT
	// GarbageCollectionThreshold = 0.5 of a flag, not CUPOOL_ALLOC_CONF=0.8
	// MaxSplit = 256M of CUPOOL_ALLOC_CONF
	// cupool: invalid configuration: limit in CUPOOL_LIMIT = lots: must be a size such as 512MiB or 2G
}

// One allocator for a process, made when it is first wanted.
func ExampleNew_once() {
	pool := sync.OnceValues(func() (*cupool.Pool, error) { // a package's variable
		return cupool.New(cupool.Config{})
	})
	a, err1 := pool()
	b, err2 := pool()
	if err := errors.Join(err1, err2); err != nil {
		log.Fatal(err)
	}
	fmt.Println(a == b, a.Close())
	// Output: true <nil>
}
