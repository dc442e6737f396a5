package dist

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/cupool/cupool"
)

// Connect makes a Comm over connections between all ranks of a group, whose
// memory is that of a pool. All ranks call it, as often as each other and in the
// same order. It returns when this rank has its connections.
//
// On devices that run Go functions (cupool.Launcher), the CPU moves and adds up
// the elements as a part of the stream's work. On others, such as a GPU, they
// are copied to the host and back, a call returns when that is done, and streams
// that are captured are refused with cupool.ErrNotSupported; package nccl is
// for those.
//
// An AllReduce goes round a ring: each rank sends and receives 2*(Size-1)/Size
// times its bytes. One of up to 4 KiB goes from each rank to all. A ReduceScatter
// takes as much of the host's memory as its src. Elements go over the network
// as they are: not encrypted, and only between machines of the same byte order.
//
// It fails with ErrRank when a rank does not connect before ctx is done or
// Config.Timeout is over, with Group.Err, and with a *cupool.ConfigError without
// a group or a pool.
func Connect(ctx context.Context, g *Group, pool *cupool.Pool) (Comm, error) {
	switch {
	case g == nil:
		return nil, &cupool.ConfigError{Field: "group", Value: nil, Reason: "Join makes one"}
	case pool == nil:
		return nil, &cupool.ConfigError{Field: "pool", Value: nil, Reason: "the memory of a rank needs one"}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.cfg.Timeout, fmt.Errorf("%w: %v are over (Config.Timeout)", context.DeadlineExceeded, g.cfg.Timeout))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer g.onFail(func() { fail(g.Err()) })()

	c := newHostComm(g.Rank(), g.Size(), pool, g.cfg.Timeout)
	if err := g.link(ctx, c); err != nil {
		for _, l := range c.links {
			if l != nil {
				l.close()
			}
		}
		if failed := g.Err(); failed != nil {
			return nil, failed
		}
		return nil, err
	}
	c.tell = func(err error) { g.fail(g.Rank(), err) }
	c.cause = g.cause
	go c.follow(g)
	return c, nil
}

// onFail calls f when the group fails, until the function that it returns is
// called.
func (g *Group) onFail(f func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-g.failed:
			f()
		case <-done:
		}
	}()
	return func() { close(done) }
}

// follow fails the rank when its group fails.
func (c *hostComm) follow(g *Group) {
	select {
	case <-g.failed:
		c.fail(g.Err())
	case <-c.shut:
	}
}

// patience is how long a rank whose connection ended waits to be told which rank
// has begun it: its neighbour may only have followed.
const patience = time.Second

func (g *Group) cause() error {
	select {
	case <-g.failed:
	case <-time.After(patience):
	case <-g.ended:
	}
	return g.Err()
}

// link connects the ranks: each listens for those above it, and dials those below.
func (g *Group) link(ctx context.Context, c *hostComm) error {
	g.mu.Lock()
	comm := g.comms
	g.comms++
	g.mu.Unlock()
	for i := range c.names {
		c.names[i] = fmt.Sprintf("rank %d", i)
	}
	if err := g.publish(comm); err != nil {
		return err
	}
	for peer := range g.Rank() {
		addr, err := g.address(ctx, comm, peer)
		if err != nil {
			return err
		}
		conn, err := g.dial(ctx, addr, g.key(forLink), hello{purpose: forLink, size: uint32(g.Size()), rank: uint32(g.Rank()), comm: comm})
		if err != nil {
			return err
		}
		c.attach(peer, conn)
	}
	for peer := g.Rank() + 1; peer < g.Size(); peer++ {
		select {
		case conn := <-g.arrivals(comm, uint32(peer)):
			c.attach(peer, conn)
		case <-ctx.Done():
			return fmt.Errorf("dist: rank %d: %w: rank %d did not connect: %w", g.Rank(), ErrRank, peer, context.Cause(ctx))
		}
	}
	return nil
}

func (c *hostComm) attach(peer int, conn net.Conn) {
	c.links[peer] = newTCPLink(conn)
	c.names[peer] = fmt.Sprintf("rank %d at %s", peer, conn.RemoteAddr())
}

// publish says where this rank listens. Of rank 0 all know it.
func (g *Group) publish(comm uint32) error {
	if g.Rank() == 0 {
		return nil
	}
	host, port, err := net.SplitHostPort(g.listener.Addr().String())
	if err != nil {
		return err
	}
	if g.cfg.Host != "" {
		host = g.cfg.Host
	}
	return g.Set(addressKey(comm, g.Rank()), []byte(net.JoinHostPort(host, port)))
}

func (g *Group) address(ctx context.Context, comm uint32, peer int) (string, error) {
	if peer == 0 {
		return g.cfg.Rendezvous, nil
	}
	addr, err := g.Get(ctx, addressKey(comm, peer))
	return string(addr), err
}

func addressKey(comm uint32, rank int) string {
	return fmt.Sprintf("cupool/dist/comm/%d/address/%d", comm, rank)
}
