package cupool_test

import (
	"fmt"
	"log"
	"os"

	"github.com/google/pprof/profile"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/snapshot"
)

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
