package cuda_test

import (
	"errors"
	"fmt"
	"log"
	"testing"

	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// The Examples of what only a GPU has.

func TestMain(m *testing.M) { gputest.Main(m) }

// A second Driver over the context of the first, for pinned memory, and the
// name of their device.
func ExampleOpenContext() {
	device, err := cuda.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	staging, err := cuda.OpenContext(device.Context(), cuda.Pinned())
	if err != nil {
		log.Fatal(err)
	}
	defer staging.Close()
	s, err1 := device.NewStream()
	from, err2 := staging.MemAlloc(4096)
	to, err3 := device.MemAlloc(4096)
	if err := errors.Join(err1, err2, err3); err != nil {
		log.Fatal(err)
	}
	got := make([]byte, 3)
	fmt.Println(errors.Join(staging.Memset(from, 4, 4096, s), device.Copy(to, from, 4096, s), device.CopyOut(got, to, s)), got)
	gpus, err := cuda.Devices()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(gpus[device.Ordinal()].Name != "", err)
	// Output:
	// <nil> [4 4 4]
	// true <nil>
}
