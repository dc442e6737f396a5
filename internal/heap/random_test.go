package heap

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
)

// mapped is what a device shows at an address.
type mapped struct {
	at     device.Ptr
	size   int64
	handle uintptr
}

// MemMap notes what is mapped where.
func (d *device1) MemMap(p device.Ptr, size int64, handle uintptr) error {
	err := d.Device.MemMap(p, size, handle)
	if err == nil {
		i, _ := slices.BinarySearchFunc(d.mapped, p, func(m mapped, p device.Ptr) int { return cmp.Compare(m.at, p) })
		d.mapped = slices.Insert(d.mapped, i, mapped{p, size, handle})
	}
	return err
}

// MemUnmap forgets it.
func (d *device1) MemUnmap(p device.Ptr, size int64) error {
	err := d.Device.MemUnmap(p, size)
	if err == nil {
		d.mapped = slices.DeleteFunc(d.mapped, func(m mapped) bool { return p <= m.at && m.at < p+device.Ptr(size) })
	}
	return err
}

// MemRelease forgets when memory was freed that goes.
func (d *device1) MemRelease(handle uintptr) error {
	err := d.Device.MemRelease(handle)
	if err == nil {
		delete(d.freedAt, handle)
	}
	return err
}

// piece is memory that a block has.
type piece struct {
	handle   uintptr
	from, to int64
	block    block.ID
}

// distinct finds memory behind every byte of the blocks that are in use, and none that
// two of them share.
func (r *rig) distinct() {
	r.t.Helper()
	var pieces []piece
	if r.space.Memory == nil { // memory is where its address is
		r.d.mapped = []mapped{{1 << 40, 1 << 40, 1}}
	}
	for _, h := range r.heaps {
		h.Each(func(_ *block.Segment, id block.ID, b *block.Block) {
			if s := b.Word().State(); s != block.Live && s != block.Pending {
				return
			}
			size := int64(0)
			for _, x := range r.pieces(id) {
				pieces, size = append(pieces, x), size+x.to-x.from
			}
			require.Equal(r.t, b.Size, size, "block %d at %v has no memory in places", id, device.Ptr(b.Addr()))
		})
	}
	slices.SortFunc(pieces, func(a, b piece) int { return cmp.Or(cmp.Compare(a.handle, b.handle), cmp.Compare(a.from, b.from)) })
	for i := 1; i < len(pieces); i++ {
		a, b := pieces[i-1], pieces[i]
		require.False(r.t, a.handle == b.handle && b.from < a.to, "blocks %d and %d share memory: %+v and %+v", a.block, b.block, a, b)
	}
}

// pieces returns the memory of a block, of which there is none while it sleeps.
func (r *rig) pieces(id block.ID) (pieces []piece) {
	b := r.block(id)
	from, to := device.Ptr(b.Addr()), device.Ptr(b.Addr())+device.Ptr(b.Size)
	for _, m := range r.d.mapped {
		if m.at < to && m.at+device.Ptr(m.size) > from {
			begin, end := max(from, m.at), min(to, m.at+device.Ptr(m.size))
			pieces = append(pieces, piece{m.handle, int64(begin - m.at), int64(end - m.at), id})
		}
	}
	return pieces
}

// noteFreed has time go on, and notes that a block's memory is freed then.
func (r *rig) noteFreed(id block.ID) {
	if r.space.Policy.TrackFrees {
		now := r.space.Time.Add(1)
		for _, x := range r.pieces(id) {
			r.d.freedAt[x.handle] = now
		}
	}
}

// older looks at what a heap says was freed before a time: no chunk of that was used since.
func (p *program) older() {
	h, time := p.heap(), p.rnd.Uint64N(p.space.Time.Load()+2)
	runs := h.WholeChunks().FreedBefore(time)
	for _, x := range runs.list {
		for _, c := range x.r.chunks[x.lo:x.hi] {
			require.Less(p.t, p.d.freedAt[c.handle], time)
		}
	}
	p.found += len(runs.list)
}

// program is a random one on several heaps of a pool.
type program struct {
	*rig
	rnd  *rand.Rand
	live []block.ID
	fine bool // half of the blocks are small
	hits int  // blocks that the magazines served

	found int // rows of chunks that older found
}

func (p *program) heap() *Heap { return p.heaps[p.rnd.IntN(len(p.heaps))] }

// tolerate accepts no error but those that the device was told to make, and a lack of
// memory or ranges.
func (p *program) tolerate(err error) {
	if !errors.Is(err, errBroken) && !errors.Is(err, device.ErrOutOfMemory) && !errors.Is(err, ErrStitches) {
		require.NoError(p.t, err)
	}
}

func (p *program) allocate() {
	size := mib/2 + p.rnd.Int64N(1+p.rnd.Int64N(40*mib))
	if p.fine && p.rnd.IntN(2) == 0 {
		size = 1 + p.rnd.Int64N(1<<(9+p.rnd.IntN(12)))
	}
	h := p.heap()
	if p.homes() {
		size = [...]int64{300, 300, 300, 300 * kib, 700 * kib}[p.rnd.IntN(5)] // so that places are taken
		if p.rnd.IntN(64) == 0 {
			h.NoHomes()
		}
	}
	none := h.noHomes > 0
	id, _, _, _ := h.Magazine.Get(size)
	if id != 0 {
		p.hits++
	} else {
		var err error
		id, err = p.try(h, size, Allow{SmallChunks: p.rnd.IntN(2) == 0})
		if p.tolerate(err); err != nil {
			return
		}
		require.False(p.t, none && p.block(id).IsHomed())
	}
	require.Equal(p.t, size, p.block(id).Requested())
	require.GreaterOrEqual(p.t, p.block(id).Size, size)
	p.live = append(p.live, id)
}

// release gives a block back: to the magazines, to the free blocks, or as pending.
func (p *program) release() {
	n := len(p.live)
	if n == 0 {
		return
	}
	i := p.rnd.IntN(n)
	id := p.live[i]
	p.live = slices.Delete(p.live, i, i+1)
	b := p.block(id)
	h := p.heaps[b.Owner()]
	if b.IsHomed() && p.rnd.IntN(4) > 0 {
		p.noteFreed(id)
		require.True(p.t, b.FreeHomed(b.Word().Gen()))
		return
	}
	require.True(p.t, h.Unhome(id, b))
	if p.rnd.IntN(8) == 0 {
		p.pend(id)
		return
	}
	none := h.noHomes > 0 || b.Size > p.space.Policy.HomeLimit
	if p.rnd.IntN(4) > 0 || !h.Rehome(id, b) {
		p.free(id)
	} else {
		require.False(p.t, none)
	}
}

// homes reports whether the heaps have magazines.
func (p *program) homes() bool { return p.space.Policy.HomeLimit > 0 }

// lend moves segments, chunks or ranges to another heap, or chunks to the other kind.
func (p *program) lend() {
	from, to, k := p.heap(), p.heap(), ledger.Kind(p.rnd.IntN(2))
	switch n := p.rnd.IntN(4); {
	case n == 0:
		if from == to || from.InUse() {
			return
		}
		from.Flush()
		if p.virtual() {
			_, _, err := from.MoveRanges(k, to)
			p.tolerate(err)
		} else if seg := from.BestIdle(k, 0, 1<<40); seg != nil {
			from.MoveSegment(seg, to)
		}
	case n == 1:
		if from != to {
			from.UnhomeAll()
			from.MoveAll(to)
			require.True(p.t, from.IsEmpty(), p.layout(from))
		}
	case p.virtual():
		chunks := from.WholeChunks()
		if from == to {
			chunks = chunks.Of(1 - k)
		}
		out, err := from.Yield(chunks, p.rnd.Int64N(60*mib))
		p.tolerate(err)
		for _, x := range out { // all streams are past its last use
			delete(p.d.freedAt, x.Handle)
		}
		_, err = to.Attach(from, k, out)
		p.tolerate(err)
		p.tolerate(from.DropGaps(p.rnd.IntN(2) == 0))
	}
}

func (p *program) shrink() {
	h := p.heap()
	if p.rnd.IntN(4) == 0 {
		p.tolerate(h.DropIdleStitches())
		return
	}
	out, err := h.Detach(h.WholeChunks(), p.rnd.Int64N(60*mib))
	p.tolerate(err)
	p.tolerate(h.Release(out))
	p.tolerate(h.DropGaps(p.rnd.IntN(2) == 0))
}

// cut has the memory of a block end with it.
func (p *program) cut() {
	if n := len(p.live); n > 0 {
		id := p.live[p.rnd.IntN(n)]
		b := p.block(id)
		p.heaps[b.Owner()].Unhome(id, b)
		_, err := p.heaps[b.Owner()].CutLast(b)
		require.NoError(p.t, err, "no two calls fail")
	}
}

// rest has all heaps sleep, frees blocks, and wakes them.
func (p *program) rest() {
	for _, h := range p.heaps {
		_, err := h.Sleep()
		if p.tolerate(err); err == nil {
			var n [2]Census
			h.Count(&n)
			require.Zero(p.t, n[ledger.Small].Reserved+n[ledger.Large].Reserved)
			for _, st := range h.stitches {
				require.True(p.t, st.asleep && st.seg != nil, "idle ranges go for good")
			}
		}
	}
	p.check()
	for range p.rnd.IntN(4) {
		p.release()
	}
	for _, h := range p.heaps {
		for {
			_, err := h.Wake()
			if p.tolerate(err); err == nil {
				break
			}
			require.ErrorIs(p.t, err, errBroken)
		}
	}
}

// trouble has one of the next calls fail, or none.
func (p *program) trouble() {
	calls := [...]simdev.Call{simdev.MemMap, simdev.MemSetAccess, simdev.MemUnmap, simdev.MemCreate, simdev.MemRelease, simdev.AddressReserve, simdev.AddressFree}
	for _, c := range calls {
		p.d.FailNth(c, 0, nil)
	}
	if p.rnd.IntN(2) == 0 {
		p.d.FailNth(calls[p.rnd.IntN(len(calls))], 1+p.rnd.IntN(3), errBroken)
	}
}

func (p *program) step() {
	switch x := p.rnd.IntN(100); {
	case x < 44 && (len(p.live) < 16 || p.homes() && len(p.live) < 40):
		p.allocate()
	case x < 76:
		p.release()
	case x < 80:
		if n := len(p.late); n > 0 {
			p.finish(p.late[p.rnd.IntN(n)])
		}
	case x < 84:
		p.lend()
	case !p.virtual(): // the others are about ranges
	case x < 89:
		p.shrink()
		if p.space.Policy.TrackFrees {
			p.older()
		}
	case x < 91:
		p.rest()
	case x < 95:
		p.cut()
	default:
		p.trouble()
	}
	p.check()
	p.distinct()
}

// virtual reports whether the heaps have virtual memory, and not segments.
func (p *program) virtual() bool { return p.space.Memory != nil }

// TestRandom: however memory is stitched and moved between the heaps of a pool, and
// whichever calls fail, no two blocks in use share any, and all have some. All rules
// hold and the books balance. What is said to be free since a time was not used since.
func TestRandom(t *testing.T) {
	seed, found := testkit.Seed(t), 0
	for n := range testkit.Rounds(48) {
		rnd := rand.New(rand.NewPCG(seed, uint64(n)))
		some := policy
		some.FirstFit = rnd.IntN(4) == 0
		some.SmallLimit >>= rnd.IntN(2)
		if rnd.IntN(2) == 0 {
			some.FastLimit = mib
		}
		some.TrackFrees = n%4 < 2 // with virtual memory
		if n%5 > 2 {
			some.HomeLimit, some.MagazineBytes = rnd.Int64N(2*mib), rnd.Int64N(4*mib)
		}
		p := &program{rig: newRig(t, 1+n%3, n%4 != 3, some), rnd: rnd, fine: n%2 == 1}
		p.budget.Limit = 96 * mib
		p.heaps[0].fragmented = p.rnd.IntN(2) == 0
		if p.rnd.IntN(2) == 0 {
			p.rig.free(p.alloc(p.heap(), 64*mib)) // leaves large handles
		}
		for range 400 {
			p.step()
		}
		for c := range simdev.NumCalls {
			p.d.FailNth(c, 0, nil)
		}
		for _, h := range p.heaps {
			h.UnhomeAll()
		}
		p.check()
		var hits int64
		for _, h := range p.heaps {
			for k := range h.free {
				hits += h.Ledger.Tallies(ledger.Kind(k))[ledger.MagazineHits].Added
			}
		}
		require.EqualValues(t, p.hits, hits)
		p.free(p.live...)
		p.finish(slices.Clone(p.late)...)
		p.close()
		found += p.found
	}
	require.NotZero(t, found)
}
