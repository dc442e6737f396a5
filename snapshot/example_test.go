package snapshot_test

import (
	"bytes"
	"fmt"
	"log"
	"os"

	"github.com/cupool/cupool/snapshot"
)

// A snapshot that PyTorch wrote: where is its memory?
func ExampleRead() {
	f, err := os.Open("../testdata/traces/torch_default.pickle.gz")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	list, err := snapshot.Read(f)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range list {
		for _, seg := range s.Segments {
			fmt.Printf("%s: %s segment of %d MiB, %d MiB live in %d blocks\n", s.Device, seg.Type, seg.Size>>20, seg.Allocated>>20, len(seg.Blocks))
		}
		fmt.Println("then:", s.Events[len(s.Events)-1].Kind)
	}
	// Output:
	// cuda:0: small segment of 2 MiB, 1 MiB live in 3 blocks
	// cuda:0: large segment of 32 MiB, 32 MiB live in 1 blocks
	// cuda:0: large segment of 32 MiB, 32 MiB live in 1 blocks
	// cuda:0: small segment of 2 MiB, 1 MiB live in 21 blocks
	// cuda:0: large segment of 20 MiB, 5 MiB live in 6 blocks
	// then: oom
}

// What another program's allocator holds, for PyTorch's viewer. An allocator of
// package cupool has its Snapshot.
func ExampleWriteTorch() {
	s := snapshot.Snapshot{Device: "cuda:0", Segments: []snapshot.Segment{{
		Address: 1 << 40, Size: 2 << 20, Allocated: 1 << 20, Active: 1 << 20, Requested: 1_000_000, Type: "small",
		Blocks: []snapshot.Block{
			{Address: 1 << 40, Size: 1 << 20, Requested: 1_000_000, State: snapshot.Live, Label: "weights"},
			{Address: 1<<40 + 1<<20, Size: 1 << 20, State: snapshot.Free},
		},
	}}}
	var file bytes.Buffer
	if err := snapshot.WriteTorch(&file, s); err != nil {
		log.Fatal(err)
	}
	again, err := snapshot.Read(&file)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(again[0].Layout())
	// Output: 0 small: [Live 1M weights][Free 1M]
}
