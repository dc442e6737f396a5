//go:build gpu

package nccl

import (
	"fmt"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/ncclapi"
)

// load returns the library at a path; "": libnccl.so.2.
func load(path string) (library, error) {
	if path == "" {
		path = "libnccl.so.2"
	}
	l, err := ncclapi.Load(path)
	if err != nil {
		return nil, fmt.Errorf("nccl: %w: %w; install NCCL 2.14 or newer (pip install nvidia-nccl-cu12, or NVIDIA's package libnccl2) and put its directory in LD_LIBRARY_PATH, or its path in Config.Library", cupool.ErrNotSupported, err)
	}
	return loaded{l}, nil
}

// loaded is an ncclapi.Library as a library.
type loaded struct{ *ncclapi.Library }

func (l loaded) Init(ctx uintptr, ranks int, id *ncclapi.ID, rank int) (communicator, ncclapi.Result) {
	c, r := l.Library.Init(ctx, ranks, id, rank)
	if c == nil {
		return nil, r
	}
	return c, r
}
