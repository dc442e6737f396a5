package nccl

import (
	"context"
	"errors"
	"sync"

	"github.com/cupool/cupool"
)

// NewLocal makes the Comms of all ranks of one process: one for each pool, which
// are on different GPUs. The rank is the number of the pool. Each rank's calls are
// made by a goroutine of its own. When one rank fails, all do. It fails as New does.
func NewLocal(ctx context.Context, pools []*cupool.Pool, cfg Config) ([]*Comm, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	comms, errs := make([]*Comm, len(pools)), make([]error, len(pools))
	store := &local{size: len(pools), set: make(chan struct{})}
	var wg sync.WaitGroup
	for i, p := range pools {
		wg.Go(func() {
			comms[i], errs[i] = New(ctx, member{store, i}, p, cfg)
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

// local is a rendezvous within a process, of one key.
type local struct {
	size  int
	set   chan struct{} // closed when value is there
	value []byte
}

// member is one rank's view of it.
type member struct {
	*local
	rank int
}

func (m member) Rank() int { return m.rank }

func (m member) Size() int { return m.size }

func (m member) Set(_ string, value []byte) error {
	m.value = append([]byte(nil), value...)
	close(m.set)
	return nil
}

func (m member) Get(ctx context.Context, _ string) ([]byte, error) {
	select {
	case <-m.set:
		return m.value, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
