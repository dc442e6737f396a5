//go:build !gpu

package cuda

import (
	"fmt"

	"github.com/cupool/cupool/device"
)

// errNoCUDA tells how to build a program with CUDA.
func errNoCUDA(what string) error {
	return fmt.Errorf(`cupool: %s: this program was built without CUDA: %w; build it with: go run github.com/cupool/cupool/cmd/cupool run -- go build -tags gpu`, what, device.ErrNotSupported)
}

func open(ordinal int, _ []Option) (Driver, error) {
	return nil, errNoCUDA(fmt.Sprintf("opening cuda:%d", ordinal))
}

func openContext(context uintptr, _ []Option) (Driver, error) {
	return nil, errNoCUDA(fmt.Sprintf("opening CUDA context 0x%x", context))
}

func devices() ([]Device, error) { return nil, errNoCUDA("listing CUDA devices") }

func version() (Versions, error) { return Versions{}, errNoCUDA("CUDA's version") }
