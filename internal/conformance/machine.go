package conformance

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cupool/cupool"
)

// machine runs a random program against an allocator and verifies all it
// sees: no live block overlaps another, every block keeps its contents until
// it is freed, whatever streams copy it, and the statistics agree.
//
// Several machines may share an allocator, a shadow and streams.
type machine struct {
	r        *rig
	c        chooser
	shadow   *shadow
	streams  []*cupool.Stream
	own      bool                // the streams, and nobody else uses the allocator
	exchange chan *piece         // with other machines; nil: none
	slow     bool                // let streams be late
	maxLive  int                 // blocks
	maxSize  func(c chooser) int // bytes

	live  []*piece
	later int // blocks that FreeLater was given and that may not be free yet
	old   []cupool.Block

	nextSeed           uint64
	allocs, bytesAsked int64
}

// piece is a live block with what it must hold.
type piece struct {
	cupool.Block
	s    *cupool.Stream
	seed uint64
}

// failed is what a machine panics with.
type failed struct{ err error }

func (m *machine) must(err error) {
	if err != nil {
		panic(failed{err})
	}
}

func (m *machine) mustf(ok bool, format string, args ...any) {
	if !ok {
		panic(failed{fmt.Errorf(format, args...)})
	}
}

// guard runs f and returns what it failed with.
func guard(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			f, ok := p.(failed)
			if !ok {
				panic(p)
			}
			err = f.err
		}
	}()
	f()
	return nil
}

// run makes steps and frees everything.
func (m *machine) run(t *testing.T, steps int) {
	t.Helper()
	err := guard(func() {
		for i := range steps {
			m.step()
			if m.own && i%16 == 0 {
				m.compare()
			}
		}
		for len(m.live) > 0 {
			m.drop(m.take())
		}
		if m.own {
			m.must(m.r.EmptyCache())
			m.later = 0
			m.compare()
		}
	})
	if err != nil {
		t.Error(err)
	}
}

func (m *machine) step() {
	switch n := m.c.IntN(100); {
	case n < 45 && len(m.live) < m.maxLive || len(m.live) == 0:
		m.alloc()
	case n < 62:
		m.drop(m.take())
	case n < 72:
		m.copyOnOther()
	case n < 76:
		m.recordAndFree()
	case n < 80:
		m.pass()
	case n < 84:
		m.mistake()
	case n < 87:
		m.order()
	case n < 90:
		m.freeLater()
	case n < 94:
		m.housekeeping()
	case n < 97:
		m.must(m.verify(m.live[m.c.IntN(len(m.live))]))
	case m.own && len(m.streams) > 1:
		m.renewStream()
	}
}

func (m *machine) stream() *cupool.Stream { return m.streams[m.c.IntN(len(m.streams))] }

// anySize prefers small sizes and repeats some, so that magazines are used.
func anySize(c chooser) int {
	if c.IntN(3) == 0 {
		return []int{512, 5000, 70000, 1 << 20, 3 << 20, 256}[c.IntN(6)]
	}
	return 1 + c.IntN(1<<(1+c.IntN(22)))
}

func (m *machine) alloc() *piece {
	return m.allocOn(int64(m.maxSize(m.c)), m.stream())
}

// allocOn allocates and writes. Out of memory is not an error of the
// allocator; then half of what is live goes.
func (m *machine) allocOn(size int64, s *cupool.Stream) *piece {
	b, err := m.r.Alloc(size, s)
	for errors.Is(err, cupool.ErrOutOfMemory) {
		m.mustf(m.r.cfg.Limit > 0 || m.r.cfg.Fraction > 0, "%w", err)
		if len(m.live) == 0 {
			m.mustf(!m.own, "nothing is live: %w", err)
			return nil // others hold it
		}
		for n := len(m.live) / 2; n >= 0; n-- {
			m.drop(m.take())
		}
		b, err = m.r.Alloc(size, s)
	}
	m.must(err)
	m.nextSeed++
	p := &piece{Block: b, s: s, seed: m.nextSeed}
	m.must(m.shadow.add(b, p.seed))
	m.mustf(b.Size() == size, "%d bytes asked for, %v got", size, b)
	if m.c.IntN(8) == 0 {
		owner, err := m.r.ownerOf(b)
		m.must(err)
		m.mustf(owner == s.Handle(), "a block for stream %#x is one of stream %#x", s.Handle(), owner)
	}
	if !m.r.env.opt.NoContents {
		m.must(write(b, p.seed, s))
	}
	m.allocs++
	m.bytesAsked += size
	m.live = append(m.live, p)
	return p
}

// take removes a random piece from the live ones.
func (m *machine) take() *piece {
	i := m.c.IntN(len(m.live))
	p := m.live[i]
	m.live[i] = m.live[len(m.live)-1]
	m.live = m.live[:len(m.live)-1]
	return p
}

func (m *machine) verify(p *piece) error {
	if m.r.env.opt.NoContents {
		return nil
	}
	return verify(p.Block, p.seed, p.s)
}

// drop verifies and frees a piece, in one of the ways there are.
func (m *machine) drop(p *piece) {
	if m.c.IntN(2) == 0 {
		m.must(m.verify(p))
	}
	m.must(m.shadow.remove(p.Block))
	switch m.c.IntN(6) {
	case 0:
		m.must(m.r.FreePtr(p.Ptr(), -1))
	case 1:
		m.must(m.r.FreePtr(p.Ptr(), p.Size()))
	default:
		m.must(m.r.Free(p.Block))
	}
	m.old = append(m.old, p.Block)
}

// copyOnOther has another stream copy a piece to a new one, and often frees
// the source while the copy may still be on its way.
func (m *machine) copyOnOther() {
	src := m.live[m.c.IntN(len(m.live))]
	n := len(m.live)
	dst := m.allocOn(src.Size(), m.stream())
	if dst == nil || len(m.live) != n+1 {
		return // memory ran out; the source may be gone
	}
	m.must(dst.s.WaitStream(src.s))
	if l := m.c.IntN(3); m.slow && l == 0 {
		m.must(dst.s.Launch(func() { time.Sleep(200 * time.Microsecond) }))
	}
	m.must(copyTo(dst.Block, src.Block, dst.s))
	dst.seed = src.seed
	m.must(m.r.RecordStream(src.Block, dst.s))
	if m.c.IntN(2) == 0 {
		for i, p := range m.live {
			if p == src {
				m.live[i] = m.live[len(m.live)-1]
				m.live = m.live[:len(m.live)-1]
				break
			}
		}
		m.must(m.shadow.remove(src.Block))
		m.must(m.r.Free(src.Block))
	}
}

func (m *machine) recordAndFree() {
	p := m.take()
	m.must(m.shadow.remove(p.Block))
	m.must(m.r.FreeOn(p.Block, m.stream()))
	m.old = append(m.old, p.Block)
}

// pass exchanges a piece with another machine.
func (m *machine) pass() {
	if m.exchange == nil {
		return
	}
	p := m.take()
	select {
	case m.exchange <- p:
	case q := <-m.exchange:
		m.live = append(m.live, p, q)
	default:
		m.live = append(m.live, p)
	}
}

// mistake makes a wrong call, which must fail and change nothing that the
// other checks would see.
func (m *machine) mistake() {
	p := m.live[m.c.IntN(len(m.live))]
	switch m.c.IntN(4) {
	case 0:
		if len(m.old) > 0 {
			b := m.old[m.c.IntN(len(m.old))]
			m.mustf(errors.Is(m.r.Free(b), cupool.ErrDoubleFree), "double free of %v is not told", b)
		}
	case 1:
		if p.Size() > 1 {
			off := 1 + m.c.IntN(int(p.Size())-1)
			err := m.r.FreePtr(p.Ptr()+cupool.Ptr(off), -1)
			m.mustf(errors.Is(err, cupool.ErrInteriorPointer), "interior pointer: %w", err)
		}
	case 2:
		err := m.r.FreePtr(p.Ptr(), p.Size()+1)
		m.mustf(errors.Is(err, cupool.ErrSizeMismatch), "wrong size: %w", err)
	case 3:
		if len(m.old) > 0 {
			b := m.old[m.c.IntN(len(m.old))]
			err := m.r.RecordStream(b, m.stream())
			m.mustf(errors.Is(err, cupool.ErrUseAfterFree), "use after free of %v: %w", b, err)
		}
	}
	if len(m.old) > 200 {
		m.old = append(m.old[:0], m.old[100:]...)
	}
}

// order makes streams wait for each other.
func (m *machine) order() {
	s, u := m.stream(), m.stream()
	if m.c.IntN(2) == 0 {
		m.must(s.WaitStream(u))
		return
	}
	ev, err := s.Record()
	m.must(err)
	m.must(u.Wait(ev))
	if m.c.IntN(2) == 0 {
		m.must(ev.Sync())
	}
	_, err = ev.Done()
	m.must(err)
	m.must(ev.Close())
}

func (m *machine) freeLater() {
	p := m.take()
	m.must(m.shadow.remove(p.Block))
	m.r.FreeLater(p.Block)
	m.later++
}

func (m *machine) housekeeping() {
	var err error
	switch m.c.IntN(8) {
	case 0:
		err = m.r.EmptyCache()
		m.later = 0
	case 1:
		_, err = m.r.Trim(int64(m.c.IntN(64)) << 20)
		m.later = 0
	case 2, 3:
		_, err = m.r.ProcessDeferred()
		m.later = 0
	case 4, 5:
		err = m.stream().Sync()
	case 6:
		err = m.r.Check()
	case 7:
		m.r.ResetPeak()
	}
	m.must(err)
}

// renewStream closes a stream and opens one in its place.
func (m *machine) renewStream() {
	i := 1 + m.c.IntN(len(m.streams)-1)
	m.must(m.streams[i].Close())
	for _, p := range m.live {
		if p.s == m.streams[i] {
			p.s = m.r.DefaultStream()
		}
	}
	s, err := m.r.NewStream()
	m.must(err)
	m.streams[i] = s
}

// compare checks the books against themselves and against what is live.
func (m *machine) compare() {
	m.must(m.r.Check())
	st := m.r.Stats()
	m.mustf(st.All.ReservedBytes.Current == st.LiveBytes+st.PendingBytes+st.CachedBytes, "reserved is not live + pending + cached: %+v", st)
	if m.later > 0 {
		return
	}
	m.mustf(st.All.Allocation.Current == int64(len(m.live)), "the books say %d live blocks, there are %d", st.All.Allocation.Current, len(m.live))
	m.mustf(st.All.RequestedBytes.Current == m.shadow.bytes, "the books say %d live bytes, there are %d", st.All.RequestedBytes.Current, m.shadow.bytes)
	m.mustf(st.All.Allocation.Allocated == m.allocs, "the books say %d allocations, there were %d", st.All.Allocation.Allocated, m.allocs)
	m.mustf(st.All.RequestedBytes.Allocated == m.bytesAsked, "the books say %d bytes asked for, there were %d", st.All.RequestedBytes.Allocated, m.bytesAsked)
	m.mustf(st.Hits+st.Misses == m.allocs, "%d hits and %d misses, %d allocations", st.Hits, st.Misses, m.allocs)
}
