package snapshot_test

import (
	"fmt"
	"log"
	"os"

	"github.com/cupool/cupool/snapshot"
)

var small = snapshot.Snapshot{Segments: []snapshot.Segment{{Blocks: []snapshot.Block{
	{Size: 1 << 20, Requested: 1 << 20, State: snapshot.Live, Label: "weights"},
	{Size: 3 << 20, State: snapshot.Free},
}}}}

// "go tool pprof -top heap.pb.gz" shows the file.
func ExampleWriteProfile() {
	f, err := os.CreateTemp("", "heap*.pb.gz")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	fmt.Println(snapshot.WriteProfile(f, small))
	// Output: <nil>
}

// What labels hold, the largest first.
func ExampleHoldersOf() {
	for _, h := range snapshot.HoldersOf(small) {
		fmt.Printf("%q: %d MiB live, %d MiB cached\n", h.Label, h.Live>>20, h.Cached>>20)
	}
	// Output:
	// "weights": 1 MiB live, 0 MiB cached
	// "": 0 MiB live, 3 MiB cached
}
