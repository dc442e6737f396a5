package nccl

import (
	"context"
	"fmt"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
)

// DefaultTimeout is what a Config.Timeout of 0 means.
const DefaultTimeout = dist.DefaultTimeout

// Config sets up a Comm. It is the same on all ranks.
type Config struct {
	// Key is where the rendezvous has what NCCL needs to find the ranks. Each
	// Comm over one rendezvous needs another. "": "nccl".
	Key string

	// Timeout bounds New, each call that has to wait for other ranks, the work
	// that the Comm has queued, from the moment that it is queued, and Close.
	// After it, the Comm is aborted and everything fails with an *Error that
	// matches dist.ErrRank and context.DeadlineExceeded. A graph's launches are
	// not bounded. 0: DefaultTimeout; negative: no bound.
	Timeout time.Duration

	// Library is the path of libnccl.so.2. "": as the dynamic loader finds it.
	Library string
}

// Rendezvous is how the ranks find each other: dist.Group is one. Set makes a
// value known, and Get waits until some rank has set it. A Comm that has a
// Rendezvous with a method Err() error fails when that does.
type Rendezvous interface {
	Rank() int // from 0 to Size-1
	Size() int
	Set(key string, value []byte) error
	Get(ctx context.Context, key string) ([]byte, error)
}

func (c Config) withDefaults() Config {
	if c.Key == "" {
		c.Key = "nccl"
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	return c
}

// bound returns ctx with the Timeout.
func (c Config) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.Timeout < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.Timeout)
}

// checkRank fails with a *cupool.ConfigError for ranks that cannot be.
func checkRank(rank, size int) error {
	switch {
	case size < 1:
		return &cupool.ConfigError{Field: "Size", Value: size, Reason: "a group has at least one rank"}
	case rank < 0 || rank >= size:
		return &cupool.ConfigError{Field: "Rank", Value: rank, Reason: fmt.Sprintf("must be from 0 to %d", size-1)}
	}
	return nil
}
