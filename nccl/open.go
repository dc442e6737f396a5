package nccl

import (
	"fmt"
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/cudalibs"
	"github.com/cupool/cupool/internal/ncclapi"
)

// load returns the library at a path; "": libnccl.so.2, where cuBLAS is looked for too.
func load(path string) (library, error) {
	candidates := slices.Values([]string{path})
	if path == "" {
		candidates = cudalibs.Candidates("libnccl.so.2")
	}
	var missing error
	for path := range candidates {
		l, err := ncclapi.Load(path)
		if err == nil {
			return loaded{l}, nil
		}
		missing = err
	}
	return nil, fmt.Errorf("nccl: %w: %w; install NCCL 2.14 or newer (pip install nvidia-nccl-cu12, or NVIDIA's package libnccl2), or put its path in Config.Library", cupool.ErrNotSupported, missing)
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
