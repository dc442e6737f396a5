package dist

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cupool/cupool"
)

// hostComm is a Comm that the CPU works for. Calls become batches, of one call or
// of a Group, which run one after the other in the order in which they came: on
// devices that run Go functions, as a part of their stream, and else on the
// caller's goroutine.
type hostComm struct {
	rank, size int
	pool       *cupool.Pool
	direct     bool // streams run Go functions, which read the memory
	links      []link
	names      []string // of the ranks, for errors
	timeout    time.Duration
	tell       func(err error) // says to the other ranks why this one failed; takes a moment
	cause      func() error    // waits a moment for what another rank said; nil: nothing

	grouping sync.Mutex // held during Group

	mu      sync.Mutex
	turned  sync.Cond // turn, queued or err changed
	queued  uint64    // batches so far
	turn    uint64    // batches that are over
	group   *batch    // that Group collects
	free    []*batch
	failing bool  // the others are being told
	err     error // why nothing works any more
	closing bool
	shut    chan struct{} // closed when all links are, after err was set

	calls   uint64 // collective ones so far; of the batch whose turn it is
	heads   []byte // this rank's headers and the other's
	got     []byte // a piece that was received
	scratch []byte // of ReduceScatter
	flat    []byte // of AllReduces that run as one
	late    *time.Timer
	waiting int // the rank that was last read from
	guard   sync.Mutex
}

func newHostComm(rank, size int, pool *cupool.Pool, timeout time.Duration) *hostComm {
	d := pool.Driver()
	_, launches := d.(cupool.Launcher)
	c := &hostComm{rank: rank, size: size, pool: pool, direct: launches && d.HostAccessible(), timeout: timeout}
	c.links, c.names = make([]link, size), make([]string, size)
	c.turned.L = &c.mu
	c.shut = make(chan struct{})
	c.waiting = rank
	return c
}

// Rank implements Comm.
func (c *hostComm) Rank() int { return c.rank }

// Size implements Comm.
func (c *hostComm) Size() int { return c.size }

// Err implements Comm.
func (c *hostComm) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Group implements Comm.
func (c *hostComm) Group(f func() error) error {
	c.grouping.Lock()
	defer c.grouping.Unlock()
	c.mu.Lock()
	b := c.batchLocked()
	c.group = b
	c.mu.Unlock()
	defer func() { // f may panic
		c.mu.Lock()
		c.group = nil
		c.mu.Unlock()
	}()
	if err := f(); err != nil {
		return err
	}
	c.mu.Lock()
	c.group = nil
	c.mu.Unlock()
	return c.submit(b)
}

// Abort implements Comm.
func (c *hostComm) Abort() error {
	c.fail(fmt.Errorf("dist: rank %d was aborted: %w", c.rank, cupool.ErrClosed))
	return nil
}

// Close implements Comm.
func (c *hostComm) Close() error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return fmt.Errorf("dist: closing rank %d: %w", c.rank, cupool.ErrClosed)
	}
	c.closing = true
	for c.turn < c.queued {
		c.turned.Wait()
	}
	err := c.err
	if err == nil {
		c.err = fmt.Errorf("dist: rank %d: %w", c.rank, cupool.ErrClosed)
		c.mu.Unlock()
		c.closeLinks()
		return nil
	}
	c.mu.Unlock()
	<-c.shut
	if errors.Is(err, cupool.ErrClosed) { // Abort's
		return nil
	}
	return err
}

// fail ends the rank: what it has queued and all later calls fail. The first error
// counts. It tells the other ranks first.
func (c *hostComm) fail(err error) {
	c.mu.Lock()
	first := !c.failing && c.err == nil
	c.failing = true
	c.mu.Unlock()
	if !first {
		<-c.shut
		return
	}
	c.tell(err)
	c.mu.Lock()
	ended := c.err != nil // Close was faster
	if !ended {
		c.err = err
	}
	c.mu.Unlock()
	if ended {
		return
	}
	c.turned.Broadcast()
	c.closeLinks()
}

func (c *hostComm) closeLinks() {
	for _, l := range c.links {
		if l != nil {
			l.close()
		}
	}
	close(c.shut)
}

// lost returns the error of a link that failed.
func (c *hostComm) lost(peer int, err error) error {
	if own := c.Err(); own != nil {
		return own
	}
	if said := c.cause(); said != nil {
		return said
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("it has closed the connection")
	}
	return fmt.Errorf("dist: rank %d: %w: %s is gone: %w", c.rank, ErrRank, c.names[peer], err)
}

// read reads from a rank.
func (c *hostComm) read(peer int, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	c.watch(peer)
	if err := c.links[peer].read(b); err != nil {
		return c.lost(peer, err)
	}
	return nil
}

func (c *hostComm) flush(peer int) error {
	c.watch(peer)
	if err := c.links[peer].flush(); err != nil {
		return c.lost(peer, err)
	}
	return nil
}

// watch fails the rank when another one keeps it waiting for longer than the
// timeout.
func (c *hostComm) watch(peer int) {
	c.guard.Lock()
	defer c.guard.Unlock()
	c.waiting = peer
	if c.late == nil {
		c.late = time.AfterFunc(c.timeout, c.expired)
		return
	}
	c.late.Reset(c.timeout)
}

func (c *hostComm) unwatch() {
	c.guard.Lock()
	defer c.guard.Unlock()
	if c.late != nil {
		c.late.Stop()
	}
}

func (c *hostComm) expired() {
	c.guard.Lock()
	peer := c.waiting
	c.guard.Unlock()
	c.fail(fmt.Errorf("dist: rank %d waited %v for %s: %w: it is late: see what it does, or raise Config.Timeout", c.rank, c.timeout, c.names[peer], ErrRank))
}
