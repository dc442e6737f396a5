package dist

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/cupool/cupool"
)

// A Group is the ranks that have joined, and a store of keys and values that all
// of them read and write. Join makes it. Its methods are safe from several
// goroutines.
//
// The ranks of a group fail together: when one dies, or its Comm fails, Err of
// all says which and why, and their Comms end. To go on, the processes that are
// left close their groups and Join again.
type Group struct {
	cfg      Config
	listener net.Listener
	store    *store // of rank 0
	session  []byte // known to those who have joined
	work     sync.WaitGroup
	life     context.Context // done after Close
	die      context.CancelFunc

	full   chan struct{} // closed when all ranks have joined
	failed chan struct{} // closed when err is set
	ended  chan struct{} // closed when rank 0 or this rank closes the group

	mu      sync.Mutex
	members []*member // of rank 0: the others, by rank
	joined  int       // of rank 0: others that were answered
	refused error     // of rank 0: the last process that was refused
	server  *tcpLink  // of others: to rank 0
	gets    map[uint32]chan []byte
	nextGet uint32
	comms   uint32
	arrived map[arrival]chan net.Conn
	failing bool // the others are being told
	err     error
	closed  bool
}

// A member is another rank, as rank 0 sees it.
type member struct {
	rank int
	addr string
	link *tcpLink
}

// An arrival is a connection that another rank makes for a Comm.
type arrival struct{ comm, rank uint32 }

func newGroup(cfg Config) *Group {
	life, die := context.WithCancel(context.Background())
	return &Group{
		cfg: cfg, life: life, die: die, full: make(chan struct{}), failed: make(chan struct{}), ended: make(chan struct{}),
		members: make([]*member, cfg.Size), gets: map[uint32]chan []byte{}, arrived: map[arrival]chan net.Conn{},
	}
}

// Rank returns the number of this rank.
func (g *Group) Rank() int { return g.cfg.Rank }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.cfg.Size }

// LocalRank returns the number of this rank among those of its machine.
func (g *Group) LocalRank() int { return g.cfg.LocalRank }

// Err returns why the group failed, or nil. It does not wait.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Set sets a key for all ranks. A key that was set before gets the new value. It
// fails with cupool.ErrInvalidSize for keys beyond 1 KiB and values beyond
// 1 MiB, with cupool.ErrClosed after Close, with ErrRank when rank 0 has closed
// the group, and with Err.
func (g *Group) Set(key string, value []byte) error {
	if len(key) > maxKey || len(value) > maxValue {
		return fmt.Errorf("dist: rank %d: Set of a key of %d and a value of %d bytes: %w: %d and %d at most", g.Rank(), len(key), len(value), cupool.ErrInvalidSize, maxKey, maxValue)
	}
	if err := g.usable(); err != nil {
		return err
	}
	if g.store != nil {
		g.store.set(key, append([]byte(nil), value...))
		return nil
	}
	g.server.write(frame{kind: frameSet, key: key, value: value}.append(nil))
	return nil
}

// Get returns the value of a key, and waits until a rank has set it. It fails as
// Set does, and with the cause of ctx.
func (g *Group) Get(ctx context.Context, key string) ([]byte, error) {
	if len(key) > maxKey {
		return nil, fmt.Errorf("dist: rank %d: Get of a key of %d bytes: %w: %d at most", g.Rank(), len(key), cupool.ErrInvalidSize, maxKey)
	}
	if err := g.usable(); err != nil {
		return nil, err
	}
	got := make(chan []byte, 1)
	id := g.ask(key, got)
	defer g.forget(id)
	select {
	case value := <-got:
		return value, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("dist: rank %d: Get of %q, which no rank has set: %w", g.Rank(), key, context.Cause(ctx))
	case <-g.failed:
	case <-g.ended:
	}
	select {
	case value := <-got: // came before the end
		return value, nil
	default:
		return nil, g.usable()
	}
}

// ask has the value sent to a channel.
func (g *Group) ask(key string, got chan []byte) (id uint32) {
	if g.store != nil {
		g.store.get(key, func(v []byte) { got <- append([]byte(nil), v...) })
		return 0
	}
	g.mu.Lock()
	g.nextGet++
	id = g.nextGet
	g.gets[id] = got
	g.mu.Unlock()
	g.server.write(frame{kind: frameGet, id: id, key: key}.append(nil))
	return id
}

func (g *Group) forget(id uint32) {
	g.mu.Lock()
	delete(g.gets, id)
	g.mu.Unlock()
}

func (g *Group) usable() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.err != nil:
		return g.err
	case g.closed: // by this rank
		return fmt.Errorf("dist: rank %d: %w", g.Rank(), cupool.ErrClosed)
	}
	select {
	case <-g.ended:
		return fmt.Errorf("dist: rank %d: %w: rank 0 has closed the group", g.Rank(), ErrRank)
	default:
		return nil
	}
}

// Close leaves the group. Comms that were connected go on, but no rank's death is
// noticed any more by those that do not wait for it. After rank 0's Close, Set
// and Get fail on all ranks. Closing twice is cupool.ErrClosed.
func (g *Group) Close() error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return fmt.Errorf("dist: rank %d: closing the group: %w", g.Rank(), cupool.ErrClosed)
	}
	g.closed = true
	links := []*tcpLink{g.server}
	for _, m := range g.members {
		if m != nil && m.link != nil {
			links = append(links, m.link)
		}
	}
	g.mu.Unlock()
	g.end()
	g.die()
	for _, l := range links {
		if l != nil {
			l.bye()
		}
	}
	if g.listener != nil {
		_ = g.listener.Close()
	}
	g.work.Wait()
	for _, l := range links {
		if l != nil {
			l.close()
		}
	}
	g.hangUp()
	return nil
}

// bye says that this side closes the group. The other side ends the connection,
// after it has read that, or it is ended a moment later.
func (l *tcpLink) bye() {
	_ = l.conn.SetDeadline(time.Now().Add(patience))
	l.write(frame{kind: frameBye}.append(nil))
	_ = l.flush() // the other side may be gone
	if c, ok := l.conn.(*net.TCPConn); ok {
		_ = c.CloseWrite()
	}
}

// hangUp closes connections that nobody has taken.
func (g *Group) hangUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.arrived {
		select {
		case conn := <-c:
			_ = conn.Close()
		default:
		}
	}
}

// end marks the group as closed by rank 0 or this rank.
func (g *Group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.ended:
	default:
		close(g.ended)
	}
}

// fail keeps the first error. It tells the other ranks before this one, whose
// program may end at once: the others would take that for the cause.
func (g *Group) fail(rank int, err error) {
	g.mu.Lock()
	if g.failing || g.closed {
		g.mu.Unlock()
		return
	}
	g.failing = true
	links := g.othersLocked(rank)
	g.mu.Unlock()

	text := err.Error()
	f := frame{kind: frameFailed, id: uint32(rank), value: []byte(text[:min(len(text), maxReason)])}.append(nil)
	for _, l := range links {
		_ = l.conn.SetWriteDeadline(time.Now().Add(patience))
		l.write(f)
	}
	for _, l := range links {
		_ = l.flush() // who does not take it learns of it otherwise
	}
	g.mu.Lock()
	g.err = err
	g.mu.Unlock()
	close(g.failed)
}

// othersLocked returns the links to those who are told that rank failed.
func (g *Group) othersLocked(rank int) (links []*tcpLink) {
	if g.store == nil && rank == g.Rank() && g.server != nil {
		return append(links, g.server)
	}
	for _, m := range g.members {
		if m != nil && m.link != nil && m.rank != rank {
			links = append(links, m.link)
		}
	}
	return links
}

// said returns the error for a rank that said why it failed, or of which rank 0
// said so.
func (g *Group) said(rank uint32, why []byte) error {
	return fmt.Errorf("dist: rank %d was told that rank %d failed: %w: %w", g.Rank(), rank, ErrRank, errors.New(string(why)))
}
