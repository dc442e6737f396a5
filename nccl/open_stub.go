//go:build !gpu

package nccl

import (
	"fmt"

	"github.com/cupool/cupool"
)

// load tells how to build a program with NCCL.
func load(string) (library, error) {
	return nil, fmt.Errorf("nccl: this program was built without CUDA: %w; build it with: go run github.com/cupool/cupool/cmd/cupool run -- go build -tags gpu", cupool.ErrNotSupported)
}
