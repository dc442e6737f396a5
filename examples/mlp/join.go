package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/nccl"
)

// joiner returns how this process's ranks find the others, or nil where there are
// none.
func (g *group) joiner() joiner {
	switch {
	case g.alone():
		return nil
	case g.nodes > 1:
		return g.join
	case g.comm == "nccl":
		return newMeeting(g.gpus, localNCCL).join
	}
	return newMeeting(g.gpus, dist.Local).join
}

// localNCCL is dist.Local for GPUs.
func localNCCL(pools ...*cupool.Pool) (comms []dist.Comm, err error) {
	all, err := nccl.NewLocal(context.Background(), pools, nccl.Config{})
	for _, c := range all {
		comms = append(comms, c)
	}
	return comms, without(err)
}

// without says what is there where NCCL is not.
func without(err error) error {
	if errors.Is(err, cupool.ErrNotSupported) {
		return fmt.Errorf("%w; -comm host does without NCCL, and takes longer", err)
	}
	return err
}

// join finds the ranks of other processes, at the rendezvous.
func (g *group) join(ctx context.Context, of share, pool *cupool.Pool) (dist.Comm, error) {
	c, err := nccl.New(ctx, pool, nccl.Config{Rank: of.rank, Size: of.size, Address: g.rendezvous, Token: os.Getenv("CUPOOL_DIST_TOKEN")})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// A meeting connects the ranks of one process once all have a pool.
type meeting struct {
	connect func(pools ...*cupool.Pool) ([]dist.Comm, error)
	all     chan struct{} // closed when comms or err is set

	mu    sync.Mutex
	pools []*cupool.Pool
	here  int
	comms []dist.Comm
	err   error
}

func newMeeting(n int, connect func(pools ...*cupool.Pool) ([]dist.Comm, error)) *meeting {
	return &meeting{connect: connect, all: make(chan struct{}), pools: make([]*cupool.Pool, n)}
}

// join waits for the other ranks.
func (m *meeting) join(ctx context.Context, of share, pool *cupool.Pool) (dist.Comm, error) {
	m.mu.Lock()
	m.pools[of.rank] = pool
	if m.here++; m.here == len(m.pools) {
		m.comms, m.err = m.connect(m.pools...)
		close(m.all)
	}
	m.mu.Unlock()
	select {
	case <-m.all:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if m.err != nil {
		return nil, m.err
	}
	return m.comms[of.rank], nil
}
