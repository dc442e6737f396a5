package nccl

import (
	"cmp"
	"context"
	"time"

	"github.com/cupool/cupool/nccl/internal/meet"
)

// DefaultTimeout is what a Config.Timeout of 0 means.
const DefaultTimeout = 10 * time.Minute

// Config sets up a Comm. It is the same on all ranks but for Rank.
type Config struct {
	Rank int // from 0 to Size-1, another one in each Comm of the group
	Size int // ranks; 0: 1

	// Address is HOST:PORT of rank 0, where it listens, and the others ask for
	// NCCL's ID, until all have come: by HTTP, which is not encrypted. With a
	// Token that is on all addresses of its machine, where HOST is a name, and
	// without one at localhost or a loopback address alone. A group of one
	// needs none.
	Address string
	// Token is a secret of the group, another one for each job: whoever does
	// not know it is refused. "": every program of the machine may join.
	Token string
	// Folder is one that all ranks see, in place of an Address: they find each
	// other by files in it, which they take away when all have come. Only the
	// group's user may write there.
	Folder string
	// Name is the communicator's. Groups that are made at the same time at one
	// address, or in one folder, need different ones. "": "nccl".
	Name string

	// Timeout bounds New, each call that has to wait for other ranks, the work
	// that the Comm has queued, from the moment that it is queued, and Close.
	// After it, the Comm is aborted and everything fails with an *Error that
	// matches dist.ErrRank and context.DeadlineExceeded. A graph's launches are
	// not bounded. Work of others that the stream has before a call counts, too.
	// What others give the stream in the quarter of a second after a call may
	// count where another call, or Group, was shortly before. 0: DefaultTimeout;
	// negative: no bound.
	Timeout time.Duration

	// Library is the path of libnccl.so.2. "": as the dynamic loader finds it.
	Library string
}

func (c Config) withDefaults() Config {
	c.Size, c.Name, c.Timeout = cmp.Or(c.Size, 1), cmp.Or(c.Name, "nccl"), cmp.Or(c.Timeout, DefaultTimeout)
	return c
}

// share returns what draw returns on rank 0.
func (c Config) share(ctx context.Context, draw func() ([]byte, error)) ([]byte, error) {
	return meet.Share(ctx, meet.Config{Rank: c.Rank, Size: c.Size, Address: c.Address, Token: c.Token, Folder: c.Folder, Name: c.Name}, draw)
}

// bound returns ctx with the Timeout.
func (c Config) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.Timeout < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.Timeout)
}
