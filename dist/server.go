package dist

import (
	"errors"
	"fmt"
	"io"
	"net"
)

// handshakes bounds the connections that have not said who they are.
const handshakes = 256

// accept takes connections until the listener is closed.
func (g *Group) accept(l net.Listener) {
	g.mu.Lock()
	g.listener = l
	g.mu.Unlock()
	g.work.Go(func() {
		slots := make(chan struct{}, handshakes)
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				g.cfg.Logger.Warn("a connection was not accepted", "rank", g.Rank(), "error", err)
				continue
			}
			slots <- struct{}{}
			g.work.Go(func() { g.receive(conn, slots) })
		}
	})
}

// receive finds out who has connected and why.
func (g *Group) receive(conn net.Conn, slots <-chan struct{}) {
	var h hello
	err := shake(g.life, conn, func() (err error) {
		var theirs nonce
		if h, theirs, err = greet(conn, g.key); err == nil {
			err = g.admit(h, conn)
		}
		var no *refusal
		if err != nil && !errors.As(err, &no) {
			return err
		}
		return errors.Join(err, answer(conn, g.key(h.purpose), theirs, no))
	})
	<-slots
	switch {
	case err != nil:
		g.refuse(h, conn, err)
	case h.purpose == forStore:
		g.serve(int(h.rank), conn)
	default:
		g.arrive(h, conn)
	}
}

// admit decides about a hello. It fails with a *refusal. The rank's place is taken
// then.
func (g *Group) admit(h hello, conn net.Conn) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	rank := int(h.rank)
	switch {
	case h.size != uint32(g.cfg.Size):
		return &refusal{wrongSize, fmt.Sprintf("rank %d's group has %d ranks: start all processes with the same Config.Size", g.cfg.Rank, g.cfg.Size)}
	case h.purpose == forLink && rank > g.cfg.Rank && rank < g.cfg.Size && h.comm < 1<<16 && g.session != nil:
		return nil
	case h.purpose != forStore || g.store == nil:
		return &refusal{notExpected, fmt.Sprintf("rank %d expects no such connection from rank %d: see Config.Rendezvous", g.cfg.Rank, rank)}
	case rank == 0 || rank >= g.cfg.Size:
		return &refusal{takenRank, fmt.Sprintf("this is rank 0, the others are 1 to %d", g.cfg.Size-1)}
	case g.members[rank] != nil:
		return &refusal{takenRank, fmt.Sprintf("rank %d is the process at %s: start each process with another rank", rank, g.members[rank].addr)}
	}
	g.members[rank] = &member{rank: rank, addr: conn.RemoteAddr().String()}
	return nil
}

// refuse ends a connection that was refused or failed at its start.
func (g *Group) refuse(h hello, conn net.Conn, err error) {
	addr := conn.RemoteAddr().String()
	_ = conn.Close()
	if g.life.Err() != nil {
		return
	}
	g.cfg.Logger.Warn("a connection was refused", "rank", g.Rank(), "from", addr, "error", err)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = fmt.Errorf("the process at %s: %w", addr, err)
	if h.purpose == forStore && g.store != nil && int(h.rank) < len(g.members) {
		if m := g.members[h.rank]; m != nil && m.addr == addr { // the answer did not reach it
			g.members[h.rank] = nil
		}
	}
}

// serve answers a rank until it leaves.
func (g *Group) serve(rank int, conn net.Conn) {
	m := g.enlist(rank, newTCPLink(conn))
	err := g.requests(m)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("its connection has ended")
	}
	g.mu.Lock()
	complete := g.joined == g.cfg.Size-1
	if !complete { // its process may be started again
		g.members[rank] = nil
		g.joined--
	}
	g.mu.Unlock()
	switch {
	case err == nil:
	case complete:
		g.fail(rank, fmt.Errorf("dist: rank %d: %w: rank %d at %s is gone: %w", g.Rank(), ErrRank, rank, m.addr, err))
	case g.life.Err() == nil:
		g.cfg.Logger.Warn("a rank left before all had joined", "rank", rank, "address", m.addr, "error", err)
	}
	m.link.close()
}

// enlist counts a rank, and starts the group when it is the last.
func (g *Group) enlist(rank int, l *tcpLink) *member {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.members[rank]
	m.link = l
	if g.joined++; g.joined == g.cfg.Size-1 {
		for _, o := range g.members[1:] {
			o.link.write(frame{kind: frameStart, value: g.session}.append(nil))
		}
		close(g.full)
	}
	if g.closed {
		_ = l.conn.Close()
	}
	return m
}

// requests does what a rank asks for. It returns nil when the rank closes the
// group.
func (g *Group) requests(m *member) error {
	for {
		f, err := readFrame(m.link.in)
		if err != nil {
			return err
		}
		switch f.kind {
		case frameSet:
			g.store.set(f.key, f.value)
		case frameGet:
			g.store.get(f.key, func(v []byte) { m.link.write(frame{kind: frameValue, id: f.id, value: v}.append(nil)) })
		case frameFailed:
			g.fail(m.rank, g.said(uint32(m.rank), f.value))
		case frameBye:
			return nil
		}
	}
}

// arrive keeps a connection for the Comm that it is for.
func (g *Group) arrive(h hello, conn net.Conn) {
	select {
	case g.arrivals(h.comm, h.rank) <- conn:
	default:
		g.refuse(h, conn, fmt.Errorf("rank %d has connected twice for Comm %d", h.rank, h.comm))
	}
}

func (g *Group) arrivals(comm, rank uint32) chan net.Conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := arrival{comm, rank}
	if g.arrived[a] == nil {
		g.arrived[a] = make(chan net.Conn, 1)
	}
	return g.arrived[a]
}

// hear takes what rank 0 says, until it or this rank closes the group.
func (g *Group) hear() {
	for {
		f, err := readFrame(g.server.in)
		if err != nil {
			g.fail(0, fmt.Errorf("dist: rank %d: %w: rank 0 at %s is gone: its connection has ended: %w", g.Rank(), ErrRank, g.cfg.Rendezvous, err))
			return
		}
		switch f.kind {
		case frameStart:
			g.start(f.value)
		case frameValue:
			g.mu.Lock()
			got := g.gets[f.id]
			g.mu.Unlock()
			if got != nil {
				got <- f.value
			}
		case frameFailed:
			g.fail(int(f.id), g.said(f.id, f.value))
		case frameBye:
			g.end()
			g.server.write(frame{kind: frameBye}.append(nil))
			_ = g.server.flush()
			g.server.close()
			return
		}
	}
}

// start keeps what rank 0 says when all have joined.
func (g *Group) start(session []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.session == nil {
		g.session = session
		close(g.full)
	}
}
