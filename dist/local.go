package dist

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cupool/cupool"
)

// patience is how long a rank of Local waits for another one.
const patience = 10 * time.Minute

// Local returns the ranks of a group in this process, one for each pool, on any
// device. Elements are added up in the order of the ranks.
//
// Several ranks may have the same pool, but then work on different streams, as
// the work of one waits for that of the others. On devices that do not run Go
// functions (cupool.Launcher), such as GPUs, memory goes over the host, calls wait
// for the other ranks, and each rank needs a goroutine of its own: take package
// nccl's Comm there.
//
// When a rank fails, all do, with an error that names it. So does a rank that
// others wait for longer than 10 minutes. Local fails with a *cupool.ConfigError
// without pools.
func Local(pools ...*cupool.Pool) ([]Comm, error) { return localWithin(patience, pools...) }

func localWithin(timeout time.Duration, pools ...*cupool.Pool) ([]Comm, error) {
	if len(pools) == 0 {
		return nil, &cupool.ConfigError{Field: "pools", Value: pools, Reason: "a group has a rank at least"}
	}
	r := &room{timeout: timeout, mail: map[pair][]*letter{}}
	r.changed.L = &r.mu
	comms := make([]Comm, len(pools))
	for i, p := range pools {
		if p.Driver() == nil {
			return nil, &cupool.ConfigError{Field: fmt.Sprintf("pools[%d]", i), Value: nil, Reason: "a rank's memory needs one"}
		}
		_, launches := p.Driver().(cupool.Launcher)
		c := &local{room: r, rank: i, size: len(pools), pool: p, direct: launches && p.Driver().HostAccessible()}
		r.ranks, comms[i] = append(r.ranks, c), c
	}
	return comms, nil
}

// A local is a rank of Local. Its calls become batches, of one call or of a Group,
// which run one after the other in the order in which they came: on devices that
// run Go functions as a part of their stream, and else on the caller's goroutine.
type local struct {
	room       *room
	rank, size int
	pool       *cupool.Pool
	direct     bool // streams run Go functions, which read the memory

	grouping sync.Mutex // held during Group
	order    sync.Mutex // held while a batch is numbered and launched

	// Under room.mu:
	queued  uint64 // batches so far
	turn    uint64 // batches that are over
	group   *batch // that Group collects
	free    []*batch
	awaits  *call       // the Send or Recv that waits for its peer
	comes   func() bool // whether awaits has what it waits for
	closing bool
	lost    bool  // what is queued does not run
	err     error // why nothing works any more

	sum []byte // of the batch whose turn it is: a piece that is added up
}

// Rank implements Comm.
func (c *local) Rank() int { return c.rank }

// Size implements Comm.
func (c *local) Size() int { return c.size }

// Err implements Comm.
func (c *local) Err() error {
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	return c.err
}

// Group implements Comm.
func (c *local) Group(f func() error) error {
	if f == nil {
		return fmt.Errorf("dist: Group of rank %d has no function: %w", c.rank, cupool.ErrInvalidHandle)
	}
	c.grouping.Lock()
	defer c.grouping.Unlock()
	b := c.newBatch()
	collect := func(b *batch) {
		c.room.mu.Lock()
		defer c.room.mu.Unlock()
		c.group = b
	}
	collect(b)
	defer collect(nil) // f may panic
	if err := f(); err != nil {
		return err
	}
	collect(nil)
	return c.submit(b)
}

// Abort implements Comm.
func (c *local) Abort() error {
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	c.failLocked(fmt.Errorf("dist: rank %d was aborted: %w", c.rank, cupool.ErrClosed))
	return nil
}

// Close implements Comm.
func (c *local) Close() error {
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	if c.closing {
		return fmt.Errorf("dist: closing rank %d: %w", c.rank, cupool.ErrClosed)
	}
	c.closing = true
	if c.turn < c.queued && c.direct {
		ended := make(chan struct{})
		defer close(ended)
		go c.watch(ended)
	}
	for c.turn < c.queued && !c.lost {
		c.room.changed.Wait()
	}
	if c.err != nil && !errors.Is(c.err, cupool.ErrClosed) { // that is Abort's
		return c.err
	}
	c.err = fmt.Errorf("dist: rank %d: %w", c.rank, cupool.ErrClosed)
	c.room.changed.Broadcast()
	return nil
}

// lookEvery is the time between two looks at a device that Close waits for.
const lookEvery = 10 * time.Millisecond

// watch ends the rank when its device is lost, which does not run what is queued, unless
// ended is closed first.
func (c *local) watch(ended <-chan struct{}) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ended:
			return
		case <-look.C:
		}
		if _, _, err := c.pool.Driver().MemInfo(); errors.Is(err, cupool.ErrDeviceLost) {
			c.room.mu.Lock()
			defer c.room.mu.Unlock()
			c.lost = true
			_ = c.failLocked(fmt.Errorf("dist: rank %d: %w", c.rank, err))
			c.room.changed.Broadcast() // also where the rank has failed before
			return
		}
	}
}

// failLocked ends all ranks that have not ended, and returns this one's error.
// Nobody takes what was sent from then on.
func (c *local) failLocked(err error) error {
	if c.err != nil {
		return c.err
	}
	for _, o := range c.room.ranks {
		if o.err == nil {
			o.err = fmt.Errorf("dist: rank %d failed: %w: %w", c.rank, ErrRank, errors.New(err.Error())) // its cause is not theirs
		}
	}
	c.err = err
	clear(c.room.mail)
	c.room.changed.Broadcast()
	return err
}

// waitLocked waits until ready reports so. It fails when one of the ranks that missing
// lists has ended, as all have that this one ends with, and when they are late.
func (c *local) waitLocked(ready func() bool, missing func() []int) error {
	if ready() {
		return nil
	}
	over := false // what was ready may not be any more
	late := time.AfterFunc(c.room.timeout, func() {
		c.room.mu.Lock()
		defer c.room.mu.Unlock()
		if !over && !ready() {
			c.failLocked(fmt.Errorf("dist: rank %d waited %v for %s: %w: late: see what it does", c.rank, c.room.timeout, names(missing()), ErrRank))
		}
	})
	defer func() {
		over = true
		late.Stop()
	}()
	for !ready() {
		for _, o := range missing() {
			if c.room.ranks[o].err != nil {
				return c.failLocked(fmt.Errorf("dist: rank %d waits for rank %d, which has closed its Comm: %w", c.rank, o, ErrRank))
			}
		}
		c.room.changed.Wait()
	}
	return nil
}

func names(ranks []int) string {
	var s []string
	for _, r := range ranks {
		s = append(s, fmt.Sprint("rank ", r))
	}
	return strings.Join(s, " and ")
}
