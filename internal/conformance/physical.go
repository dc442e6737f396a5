package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// physical is a Driver with virtual memory that knows which physical memory
// every address leads to.
type physical struct {
	cupool.Driver
	vm cupool.VirtualMemory

	mu      sync.Mutex
	handles map[uintptr]int64 // bytes of those that were not released
	maps    []mapping         // by address
}

// mapping is one handle at one address.
type mapping struct {
	at     cupool.Ptr
	size   int64
	handle uintptr
	open   bool // for access
}

// extent is a range of a handle.
type extent struct {
	handle uintptr
	off, n int64
	of     cupool.Block
}

func newPhysical(d cupool.Driver) *physical {
	return &physical{Driver: d, vm: d.(cupool.VirtualMemory), handles: map[uintptr]int64{}}
}

// Launch submits a Go function where the device runs them.
func (p *physical) Launch(s cupool.StreamHandle, f func()) error {
	return p.Driver.(cupool.Launcher).Launch(s, f)
}

func (p *physical) VMMGranularity() int64 { return p.vm.VMMGranularity() }
func (p *physical) AddressReserve(size int64) (cupool.Ptr, error) {
	return p.vm.AddressReserve(size)
}
func (p *physical) AddressFree(at cupool.Ptr, size int64) error { return p.vm.AddressFree(at, size) }

func (p *physical) MemCreate(size int64) (uintptr, error) {
	h, err := p.vm.MemCreate(size)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.handles[h] = size
	}
	return h, err
}

func (p *physical) MemRelease(h uintptr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.handles, h)
	return p.vm.MemRelease(h)
}

// find returns the place of the first mapping that ends after an address.
func (p *physical) find(at cupool.Ptr) int {
	i, _ := slices.BinarySearchFunc(p.maps, at, func(m mapping, a cupool.Ptr) int {
		if m.at+cupool.Ptr(m.size) <= a {
			return -1
		}
		return 1
	})
	return i
}

func (p *physical) MemMap(at cupool.Ptr, size int64, h uintptr) error {
	err := p.vm.MemMap(at, size, h)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.maps = slices.Insert(p.maps, p.find(at), mapping{at: at, size: size, handle: h})
	}
	return err
}

func (p *physical) MemSetAccess(at cupool.Ptr, size int64) error {
	err := p.vm.MemSetAccess(at, size)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := p.find(at); err == nil && i < len(p.maps) && p.maps[i].at < at+cupool.Ptr(size); i++ {
		p.maps[i].open = true
	}
	return err
}

func (p *physical) MemUnmap(at cupool.Ptr, size int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.vm.MemUnmap(at, size)
	if err == nil {
		p.maps = slices.Delete(p.maps, p.find(at), p.find(at+cupool.Ptr(size)))
	}
	return err
}

// held returns the bytes of all handles.
func (p *physical) held() (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, size := range p.handles {
		n += size
	}
	return n
}

// extents returns the physical memory of a block.
func (p *physical) extents(b cupool.Block) (out []extent, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, end := b.Ptr(), b.Ptr()+cupool.Ptr(b.Size())
	for i := p.find(at); at < end; i++ {
		if i == len(p.maps) || p.maps[i].at > at || !p.maps[i].open {
			return nil, fmt.Errorf("block %v has no memory at %v", b, at)
		}
		m := p.maps[i]
		if _, ok := p.handles[m.handle]; !ok {
			return nil, fmt.Errorf("block %v has memory at %v that was released", b, at)
		}
		n := min(int64(end-at), m.size-int64(at-m.at))
		out = append(out, extent{m.handle, int64(at - m.at), n, b})
		at += cupool.Ptr(n)
	}
	return out, nil
}

// disjoint fails when two blocks share physical memory or one lacks it.
func (p *physical) disjoint(live []piece) error {
	var all []extent
	for _, l := range live {
		ext, err := p.extents(l.Block)
		if err != nil {
			return err
		}
		all = append(all, ext...)
	}
	slices.SortFunc(all, func(a, b extent) int {
		return cmp.Or(cmp.Compare(a.handle, b.handle), cmp.Compare(a.off, b.off))
	})
	for i := 1; i < len(all); i++ {
		if a, b := all[i-1], all[i]; a.handle == b.handle && a.off+a.n > b.off {
			return fmt.Errorf("blocks %v and %v share byte %d of handle %#x", a.of, b.of, b.off, b.handle)
		}
	}
	return nil
}

// ballast is held all the time, as the pools of a small program keep their
// memory from each other.
const ballast = 256 * mib

// testPhysical runs random programs of blocks that have to be stitched, on
// streams that are late, come and go and take memory from each other, with
// an allocator that trims and sleeps, against an oracle that knows every
// piece of physical memory.
func testPhysical(t *testing.T, e *env) {
	seed := testkit.Seed(t)
	var p *physical
	r := e.rigOn(t, func(d cupool.Driver) cupool.Driver {
		if vm, ok := d.(cupool.VirtualMemory); !ok || vm.VMMGranularity() == 0 {
			t.Skip("no virtual memory")
		}
		p = newPhysical(d)
		return p
	}, func(c *cupool.Config) { c.Limit, c.Fraction = ballast+400*mib, 0 })
	if !r.vmm() {
		t.Skip("no virtual memory")
	}
	heavy := r.alloc(ballast, nil)
	m := &stitcher{r: r, p: p, c: choices(seed, 0), late: e.opt.Busy == nil, streams: []*cupool.Stream{r.stream(), r.stream(), r.stream()}}
	for i := range scaled(400) {
		require.NoError(t, m.step(), "step %d", i)
		require.NoError(t, p.disjoint(m.live), "step %d", i)
		if i%8 == 0 {
			require.NoError(t, r.Check(), "step %d", i)
			require.Equal(t, r.Stats().All.ReservedBytes.Current, p.held(), "step %d", i)
		}
	}
	st := r.Stats()
	t.Logf("%d stitches, reused %d times, %d moves", st.Stitches, st.StitchReuses, st.Moves)
	if steps := scaled(400); steps == 400 {
		require.Positive(t, st.Stitches)
		require.True(t, st.Moves > 0 || e.opt.WaitsRun)
	}
	for len(m.live) > 0 {
		require.NoError(t, m.free())
	}
	r.free(heavy)
	require.NoError(t, r.EmptyCache())
	r.requireNothing()
	require.Zero(t, p.held())
}

// stitcher is such a program. A piece's stream is where its contents are.
type stitcher struct {
	r       *rig
	p       *physical
	c       chooser
	streams []*cupool.Stream
	live    []piece
	seed    uint64
	late    bool // streams can be
}

func (m *stitcher) step() error {
	switch n := m.c.IntN(100); {
	case n < 50 && len(m.live) < 40:
		return m.alloc()
	case n < 80 && len(m.live) > 0:
		return m.free()
	case n < 92 && len(m.live) > 0:
		return m.copyLate()
	case n < 95:
		return second(m.r.Trim(ballast + int64(m.c.IntN(400))*mib))
	case n < 97:
		return m.nap()
	case n < 99:
		return m.renew()
	}
	return nil
}

// alloc allocates a block, often one of the small pool that is large enough to
// leave whole chunks free, and writes it.
func (m *stitcher) alloc() error {
	size := int64(1 + m.c.IntN(12<<20))
	if m.c.IntN(3) == 0 {
		size = 1<<20 - int64(m.c.IntN(1<<m.c.IntN(20)))
	}
	m.seed++
	p := piece{s: m.streams[m.c.IntN(len(m.streams))], seed: m.seed}
	var err error
	if p.Block, err = m.r.Alloc(size, p.s); err != nil {
		return err
	}
	m.live = append(m.live, p)
	return m.fill(p)
}

// fill writes a block's spots and around every border of two chunks.
func (m *stitcher) fill(p piece) error {
	if m.r.env.opt.NoContents {
		return nil
	}
	for _, sp := range m.spots(p) {
		if err := p.s.CopyIn(p.Ptr()+cupool.Ptr(sp.off), pattern(p.seed, sp)); err != nil {
			return err
		}
	}
	return nil
}

func (m *stitcher) spots(p piece) []spot {
	return append(spots(p.Size()), slices.DeleteFunc(seams(p.Block, granularityOf(&m.r.cfg)), func(sp spot) bool {
		return sp.off+sp.n > p.Size()-64 || sp.off < 64 || sp.off+sp.n > p.Size()/2 && sp.off < p.Size()/2+64
	})...)
}

func (m *stitcher) take() piece {
	i := m.c.IntN(len(m.live))
	p := m.live[i]
	m.live = slices.Delete(m.live, i, i+1)
	return p
}

// free verifies a block and frees it.
func (m *stitcher) free() error {
	p := m.take()
	if !m.r.env.opt.NoContents {
		for _, sp := range m.spots(p) {
			got := make([]byte, sp.n)
			if err := p.s.CopyOut(got, p.Ptr()+cupool.Ptr(sp.off)); err != nil {
				return err
			}
			if !slices.Equal(got, pattern(p.seed, sp)) {
				return fmt.Errorf("block %d at %v is corrupt at offset %d", p.seed, p.Block, sp.off)
			}
		}
	}
	return m.r.Free(p.Block)
}

// copyLate copies a block on its stream, which is late, and frees it before
// that has happened.
func (m *stitcher) copyLate() error {
	from := m.take()
	to := piece{s: from.s, seed: from.seed}
	var err error
	if to.Block, err = m.r.Alloc(from.Size(), to.s); err != nil {
		return err
	}
	if m.late {
		if err := to.s.Launch(func() { time.Sleep(300 * time.Microsecond) }); err != nil {
			return err
		}
	}
	for _, sp := range m.spots(from) {
		if err := to.s.Copy(to.Ptr()+cupool.Ptr(sp.off), from.Ptr()+cupool.Ptr(sp.off), sp.n); err != nil {
			return err
		}
	}
	m.live = append(m.live, to)
	return m.r.Free(from.Block)
}

// nap sleeps and wakes, with the contents kept.
func (m *stitcher) nap() error {
	if err := m.r.Sleep(func(cupool.Block) bool { return true }); err != nil {
		return err
	}
	if n := m.p.held(); n > 0 {
		return fmt.Errorf("%d bytes are held asleep", n)
	}
	return m.r.Wake()
}

// renew closes a stream and opens another one. What is live goes over to the
// default stream.
func (m *stitcher) renew() error {
	i := m.c.IntN(len(m.streams))
	old := m.streams[i]
	if err := old.Close(); err != nil {
		return err
	}
	for k := range m.live {
		if m.live[k].s == old {
			m.live[k].s = m.r.DefaultStream()
		}
	}
	var err error
	m.streams[i], err = m.r.NewStream()
	return err
}
