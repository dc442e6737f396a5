package cupool_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"sync"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/snapshot"
)

// How the pools grow, what stays whole, and what is given back first.
func ExampleConfig_growth() {
	device, err := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 30})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	pool, err := cupool.New(cupool.Config{
		Driver:                     device,
		InitialSize:                64 << 20, // reserved by New
		GrowthFactor:               2,        // then twice as much
		MaxSplit:                   256 << 20,
		GarbageCollectionThreshold: 0.8,
		BeforeGrow:                 func(size int64) { fmt.Println("growing for", size>>20, "MiB") },
		OnRelease:                  func(bytes int64) { fmt.Println("released", bytes>>20, "MiB") },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	a, err := pool.Alloc(60<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	b, err := pool.Alloc(30<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().All.ReservedBytes.Current>>20, "MiB reserved")
	if err := errors.Join(pool.Free(a), pool.Free(b), pool.EmptyCache()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// growing for 30 MiB
	// 128 MiB reserved
	// released 128 MiB
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

// A file for PyTorch's viewer: drop it onto https://pytorch.org/memory_viz.
func ExamplePool_Snapshot_viewer() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	b, err := pool.WithLabel("weights").Alloc(3<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Free(b)
	file, err := os.CreateTemp("", "*.pickle")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(file.Name())
	if err := errors.Join(snapshot.WriteTorch(file, pool.Snapshot()), file.Close()); err != nil {
		log.Fatal(err)
	}

	if file, err = os.Open(file.Name()); err != nil { // for our own tools
		log.Fatal(err)
	}
	defer file.Close()
	list, err := snapshot.Read(file)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(list), "pool,", list[0].Segments[0].Allocated>>20, "MiB live")
	// Output: 1 pool, 3 MiB live
}

// A program that lets the environment configure its allocator.
func ExampleConfigFromEnv() {
	os.Setenv(cupool.AllocConf, "max_split_size_mb:256,garbage_collection_threshold:0.8")
	os.Setenv("CUPOOL_MAX_SIZE", "1GiB")
	defer os.Unsetenv(cupool.AllocConf)
	defer os.Unsetenv("CUPOOL_MAX_SIZE")

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

	os.Setenv("CUPOOL_MAX_SIZE", "lots")
	_, _, err = cupool.ConfigFromEnv(cupool.Config{})
	fmt.Println(err)
	// Output:
	// Limit = 1G of CUPOOL_MAX_SIZE
	// GarbageCollectionThreshold = 0.5 of a flag, not CUPOOL_ALLOC_CONF=0.8
	// MaxSplit = 256M of CUPOOL_ALLOC_CONF
	// cupool: invalid configuration: max_size in CUPOOL_MAX_SIZE = lots: must be a size such as 512MiB or 2G
}

// A Stat for books of one's own.
func ExampleStat() {
	var tokens cupool.Stat
	tokens.Add(3)
	tokens.Take(2)
	fmt.Println(tokens.Current, "of at most", tokens.Peak)
	// Output: 1 of at most 3
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
