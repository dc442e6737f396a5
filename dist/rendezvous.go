package dist

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/cupool/cupool"
)

// handshake bounds the first exchange of a connection.
const handshake = 10 * time.Second

// alive finds machines that are gone without a word.
var alive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// Join makes this process a rank of a group, and returns when all ranks have
// joined. Rank 0 listens on Config.Rendezvous, and the others may start before it.
//
// It fails with a *cupool.ConfigError: for a configuration that cannot be, or
// that is not the group's, such as another size, a token that differs, or the
// number of another process. It fails with ErrRank when ranks have not come
// before ctx is done or Config.Timeout is over, and names them, with
// cupool.ErrNotSupported where another version of this package or another
// program answers, and with the network's errors.
func Join(ctx context.Context, cfg Config) (*Group, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Timeout, fmt.Errorf("%w: %v are over (Config.Timeout)", context.DeadlineExceeded, cfg.Timeout))
	defer cancel()
	g := newGroup(cfg)
	if cfg.Rank == 0 {
		err = g.lead(ctx)
	} else {
		err = g.follow(ctx)
	}
	if err != nil {
		g.fail(cfg.Rank, err)
		_ = g.Close()
		return nil, err
	}
	return g, nil
}

// lead is Join of rank 0.
func (g *Group) lead(ctx context.Context) error {
	g.store = newStore()
	g.session = make([]byte, 32)
	_, _ = rand.Read(g.session) // it never fails
	if g.cfg.Size == 1 {
		close(g.full)
		return nil
	}
	l, err := listen(ctx, g.cfg.Rendezvous)
	if err != nil {
		return fmt.Errorf("dist: rank 0 cannot listen on %s: %w: it is to be an address of rank 0's machine, with a port that is free", g.cfg.Rendezvous, err)
	}
	g.accept(l)
	select {
	case <-g.full:
		return nil
	case <-ctx.Done():
		return g.incomplete(context.Cause(ctx))
	}
}

// listen listens on the rendezvous. Where its name is that of something before
// this machine (a Service of Kubernetes), it listens on all addresses.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: alive}
	l, err := lc.Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		_, port, _ := net.SplitHostPort(addr)
		return lc.Listen(ctx, "tcp", ":"+port)
	}
	return l, err
}

// incomplete says which ranks have not joined.
func (g *Group) incomplete(cause error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var missing []string
	for rank, m := range g.members {
		if rank > 0 && m == nil {
			missing = append(missing, fmt.Sprint(rank))
		}
	}
	err := fmt.Errorf("dist: rank 0 waited at %s: %w: ranks %s of %d have not joined: %w", g.cfg.Rendezvous, ErrRank, strings.Join(missing, ", "), g.cfg.Size, cause)
	if g.refused != nil {
		err = fmt.Errorf("%w; the last that was refused: %w", err, g.refused)
	}
	return err
}

// follow is Join of the other ranks.
func (g *Group) follow(ctx context.Context) error {
	conn, err := g.dial(ctx, g.cfg.Rendezvous, g.key(forStore), hello{purpose: forStore, size: uint32(g.cfg.Size), rank: uint32(g.cfg.Rank)})
	if err != nil {
		return err
	}
	g.server = newTCPLink(conn)
	host, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	if g.cfg.Host != "" { // which is another of this machine's addresses, or before it
		host = ""
	}
	lc := net.ListenConfig{KeepAliveConfig: alive}
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return fmt.Errorf("dist: rank %d cannot listen on %s: %w", g.Rank(), host, err)
	}
	g.accept(l)
	g.work.Go(g.hear)
	select {
	case <-g.full:
		return nil
	case <-g.failed:
		return g.Err()
	case <-g.ended:
		return fmt.Errorf("dist: rank %d: %w: rank 0 at %s has left before all ranks had joined", g.Rank(), ErrRank, g.cfg.Rendezvous)
	case <-ctx.Done():
		return fmt.Errorf("dist: rank %d waited at %s: %w: not all ranks have joined: %w", g.Rank(), g.cfg.Rendezvous, ErrRank, context.Cause(ctx))
	}
}

// dial reaches another rank, and tries again until it listens.
func (g *Group) dial(ctx context.Context, addr string, key []byte, h hello) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: alive, Timeout: handshake}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			if err = shake(ctx, conn, func() error { return introduce(conn, key, h) }); err == nil {
				return conn, nil
			}
			_ = conn.Close()
		}
		var no *refusal
		switch {
		case errors.As(err, &no):
			return nil, g.refusedBy(addr, no)
		case errors.Is(err, errStranger):
			return nil, fmt.Errorf("dist: rank %d at %s: %w: %w: choose another port for the rendezvous", g.Rank(), addr, err, cupool.ErrNotSupported)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("dist: rank %d cannot reach %s: %w: %w: the last try: %w", g.Rank(), addr, ErrRank, context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

// shake runs a handshake on a connection within its time.
func shake(ctx context.Context, conn net.Conn, f func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(handshake))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := f()
	if stop() {
		_ = conn.SetDeadline(time.Time{})
	}
	return err
}

// refusedBy is the error of a rank that was refused.
func (g *Group) refusedBy(addr string, no *refusal) error {
	bad := func(field string, value any) error {
		return fmt.Errorf("dist: rank %d was refused by %s: %w", g.Rank(), addr, &cupool.ConfigError{Field: field, Value: value, Reason: no.reason})
	}
	switch no.code {
	case wrongSize:
		return bad("Size", g.cfg.Size)
	case takenRank:
		return bad("Rank", g.cfg.Rank)
	case wrongToken:
		return bad("Token", "(secret)")
	case wrongVersion:
		return fmt.Errorf("dist: rank %d was refused by %s: %w: %w", g.Rank(), addr, cupool.ErrNotSupported, no)
	}
	return fmt.Errorf("dist: rank %d was refused by %s: %w: %w", g.Rank(), addr, ErrRank, no)
}

// key signs connections of a purpose.
func (g *Group) key(purpose uint16) []byte {
	key := []byte(g.cfg.Token)
	if purpose == forLink {
		g.mu.Lock()
		defer g.mu.Unlock()
		key = append(append(key, 0), g.session...)
	}
	return key
}
