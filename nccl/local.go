package nccl

import (
	"context"
	"errors"
	"sync"

	"github.com/cupool/cupool"
)

// NewLocal makes the Comms of all ranks of one process: one for each pool, which
// are on different GPUs. The rank is the number of the pool. Each rank's calls are
// made by a goroutine of its own. When one rank fails, all do. Of the Config it
// takes Timeout and Library. It fails as New does.
func NewLocal(ctx context.Context, pools []*cupool.Pool, cfg Config) ([]*Comm, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if len(pools) == 0 {
		return nil, &cupool.ConfigError{Field: "pools", Value: pools, Reason: "a group has a rank at least"}
	}
	return newLocal(ctx, len(pools), func(ctx context.Context, rank int, share sharing) (*Comm, error) {
		cfg := Config{Rank: rank, Size: len(pools), Timeout: cfg.Timeout, Library: cfg.Library}.withDefaults()
		return newComm(ctx, pools[rank], cfg, share)
	})
}

// newLocal makes the Comms of some ranks at the same time, by a function for one.
func newLocal(ctx context.Context, ranks int, newRank func(ctx context.Context, rank int, share sharing) (*Comm, error)) ([]*Comm, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	comms, errs := make([]*Comm, ranks), make([]error, ranks)
	var id []byte
	drawn := make(chan struct{}) // closed when id is there
	share := func(rank int) sharing {
		return func(ctx context.Context, draw func() ([]byte, error)) (_ []byte, err error) {
			if rank == 0 {
				if id, err = draw(); err == nil { // else ctx ends
					close(drawn)
				}
				return id, err
			}
			select {
			case <-drawn:
				return id, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
	var wg sync.WaitGroup
	for i := range ranks {
		wg.Go(func() {
			comms[i], errs[i] = newRank(ctx, i, share(i))
			if errs[i] != nil {
				cancel(errs[i]) // the others wait for this one
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err == nil {
		return comms, nil
	}
	for i, c := range comms {
		if c != nil {
			errs[i] = c.Abort()
		}
	}
	return nil, errors.Join(context.Cause(ctx), errors.Join(errs...))
}
