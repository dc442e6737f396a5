package magazine

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/block"
)

const owner = 1

// pen is a cache with a way to make blocks for it. There is one processor, so
// that all that a test does is done on that.
type pen struct {
	*Cache
	slots block.SlotCache
}

func newPen(t testing.TB) *pen {
	n := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(n) })
	return penOf(&Procs{list: make([]proc, 2)})
}

func penOf(p *Procs) *pen {
	t := new(block.Table)
	return &pen{Cache: New(t, owner, p), slots: block.SlotCache{Table: t}}
}

// block makes a live block, in no slot yet.
func (p *pen) block(t testing.TB, size int64) (block.ID, *block.Block) {
	require.NoError(t, p.slots.Ensure(1))
	id, b := p.slots.Take()
	b.Size = size
	b.SetRequested(size)
	b.SetOwner(owner)
	b.SetWord(block.MakeWord(0, block.Live))
	return id, b
}

// put homes a live block on this processor; a miss makes the shard.
func (p *pen) put(t testing.TB, size int64) (block.ID, *block.Block, Leaver) {
	id, b := p.block(t, size)
	p.miss(t, size, false)
	evicted, ok := p.Home(id, b, block.Long)
	require.True(t, ok)
	return id, b, evicted
}

// putAway homes one on another processor.
func (p *pen) putAway(t testing.TB, size int64) (block.ID, *block.Block) {
	id, b := p.block(t, size)
	p.shards[1].CompareAndSwap(nil, &shard{proc: &p.procs.list[1]})
	_, ok := p.place(1, id, b, block.Long)
	require.True(t, ok)
	return id, b
}

// sizesOfOneSet returns n sizes that share a set.
func sizesOfOneSet(n int) (sizes []int64) {
	first, _ := hash(512)
	for size := int64(512); len(sizes) < n; size += 512 {
		if set, _ := hash(size); set == first {
			sizes = append(sizes, size)
		}
	}
	return sizes
}

func TestSetIsOneCacheLine(t *testing.T) {
	require.EqualValues(t, 64, unsafe.Sizeof(set{}))
}

func TestGet(t *testing.T) {
	p := newPen(t)
	got, _, _, _ := p.Get(1000)
	require.Zero(t, got, "no shard yet")
	id, b, evicted := p.put(t, 1000)
	require.Zero(t, evicted)
	got, _, _, _ = p.Get(1000)
	require.Zero(t, got, "it is out")

	require.True(t, b.FreeHomed(0))
	require.False(t, b.FreeHomed(0), "again")
	got, _, _, _ = p.Get(1001)
	require.Zero(t, got, "another size")
	got, gb, gen, _ := p.Get(1000)
	require.Equal(t, id, got)
	require.Same(t, b, gb)
	require.EqualValues(t, 1, gen)
	require.Equal(t, block.MakeWord(1, block.Live|block.Homed), b.Word())

	require.False(t, b.FreeHomed(0), "the generation before")
	require.True(t, b.FreeHomed(1))
	_, _, gen, _ = p.Get(1000)
	require.EqualValues(t, 2, gen)
}

// Two sizes with the same set and tag do not get each other's blocks.
func TestGetSameTag(t *testing.T) {
	p := newPen(t)
	_, b, _ := p.put(t, 1000)
	require.True(t, b.FreeHomed(0))
	b.SetRequested(2000)
	got, _, _, _ := p.Get(1000)
	require.Zero(t, got)
}

// miss has a size miss, and reports whether it recurs.
func (p *pen) miss(t testing.TB, size int64, large bool) bool {
	id, _, _, misses := p.Get(size)
	require.Zero(t, id)
	return p.Recurs(misses, size, large)
}

func TestRecursTheSecondInARow(t *testing.T) {
	p := newPen(t)
	sizes := sizesOfOneSet(2)
	require.False(t, p.miss(t, sizes[0], false))
	require.True(t, p.miss(t, sizes[0], false))
	require.True(t, p.miss(t, sizes[0], false), "and every further one")
	require.False(t, p.miss(t, sizes[1], false), "another size of the set")
	require.False(t, p.miss(t, sizes[0], false), "which is not in a row then")
	p.miss(t, sizes[0]+1, false)
	require.True(t, p.miss(t, sizes[0], false), "another set does not matter")
}

// A large size needs more misses, of all sizes.
func TestRecursLargeAfterAStreak(t *testing.T) {
	p := newPen(t)
	for range 2 {
		for i := range largeStreak {
			require.False(t, p.miss(t, 2<<20, true), "miss %d", i)
		}
		require.True(t, p.miss(t, 2<<20, true))
		require.True(t, p.miss(t, 2<<20, true))
		p.Get(512) // of whatever set
	}
}

// A hit is no miss.
func TestRecursNotByHits(t *testing.T) {
	p := newPen(t)
	_, b, _ := p.put(t, 2<<20) // the first miss
	for gen := range uint64(largeStreak) {
		require.True(t, b.FreeHomed(gen))
		id, _, _, misses := p.Get(2 << 20)
		require.NotZero(t, id)
		require.Zero(t, misses)
	}
	for i := range largeStreak - 1 {
		require.False(t, p.miss(t, 2<<20, true), "miss %d", i)
	}
	require.True(t, p.miss(t, 2<<20, true))
}

func TestHomeEvictsInTurn(t *testing.T) {
	p := newPen(t)
	sizes := sizesOfOneSet(3 * ways)
	var ids []block.ID
	for i, size := range sizes[:ways] {
		id, b, evicted := p.put(t, size)
		require.Zero(t, evicted)
		ids = append(ids, id)
		if i%2 == 0 {
			require.True(t, b.FreeHomed(0))
		}
	}
	var evicted []block.ID
	for _, size := range sizes[ways : 2*ways] {
		_, _, e := p.put(t, size)
		b := p.table.At(e.ID)
		require.Equal(t, e.Word, b.Word())
		require.False(t, e.Word.Has(block.Homed))
		require.Equal(t, len(evicted)%2 == 1, e.Word.State() == block.Cached, "victims begin with the second")
		evicted = append(evicted, e.ID)
	}
	require.ElementsMatch(t, ids, evicted, "each slot once")

	// A slot whose block left is taken first.
	id, _, _ := p.put(t, sizes[2*ways])
	l, ok := p.Leave(id)
	require.True(t, ok)
	require.Equal(t, block.MakeWord(0, block.Live), l.Word)
	_, _, e := p.put(t, sizes[2*ways+1])
	require.Zero(t, e)
}

// Without a shard for the processor, or a processor that was there when the
// cache was made, there is no place.
func TestHomeWithoutShard(t *testing.T) {
	p := newPen(t)
	id, b := p.block(t, 512)
	_, ok := p.Home(id, b, block.Long)
	require.False(t, ok)
	require.Equal(t, block.MakeWord(0, block.Live), b.Word())

	p = penOf(&Procs{})
	for range 3 {
		require.False(t, p.miss(t, 512, false))
	}
	_, ok = p.Home(id, b, block.Long)
	require.False(t, ok)
	require.False(t, b.FreeHomed(0))
}

func TestShardsAreApart(t *testing.T) {
	p := newPen(t)
	id, b := p.putAway(t, 1000)
	require.True(t, b.FreeHomed(0))
	p.put(t, 1000)
	got, _, _, _ := p.Get(1000)
	require.Zero(t, got)
	_, ok := p.Leave(id)
	require.False(t, ok, "it is cached")
}

// find returns the slot of a block, or -1.
func (s *set) find(id block.ID) int {
	for w := range s {
		if block.ID(s[w].Load()>>32) == id {
			return w
		}
	}
	return -1
}

// What a stale slot leads to is left alone: a block that has another home by
// now, or is another stream's.
func TestStaleSlots(t *testing.T) {
	p := newPen(t)
	id, b, _ := p.put(t, 1000)
	_, ok := p.Leave(id)
	require.True(t, ok)
	p.shards[1].Store(&shard{proc: &p.procs.list[1]})
	_, ok = p.place(1, id, b, block.Long)
	require.True(t, ok)
	require.True(t, b.FreeHomed(0))
	sh := p.shards[0].Load()
	set, _ := hash(1000)
	require.Equal(t, 0, sh.sets[set].find(id))
	got, _, _, _ := p.Get(1000)
	require.Zero(t, got, "at home elsewhere")
	require.Equal(t, -1, sh.sets[set].find(id), "and not looked at again")

	_, b, _ = p.put(t, 2000)
	require.True(t, b.FreeHomed(0))
	b.SetOwner(owner + 1)
	got, _, _, _ = p.Get(2000)
	require.Zero(t, got, "another stream's")
	var ids []block.ID
	p.Flush(true, func(l Leaver) { ids = append(ids, l.ID) })
	require.Equal(t, []block.ID{id}, ids)
}

func TestHas(t *testing.T) {
	p := newPen(t)
	require.False(t, p.Has(1000))
	_, b, _ := p.put(t, 1000)
	require.False(t, p.Has(1000), "it is out")
	require.True(t, b.FreeHomed(0))
	require.True(t, p.Has(1000))
	require.False(t, p.Has(1001))
	_, b = p.putAway(t, 2000)
	require.True(t, b.FreeHomed(0))
	require.True(t, p.Has(2000), "on another processor")
	b.SetOwner(owner + 1)
	require.False(t, p.Has(2000), "another stream's")
}

func TestLeaveCountsHits(t *testing.T) {
	p := newPen(t)
	id, b, _ := p.put(t, 1000)
	for gen := range uint64(3) {
		require.True(t, b.FreeHomed(gen))
		p.Get(1000)
	}
	l, ok := p.Leave(id)
	require.True(t, ok)
	require.Equal(t, Leaver{id, block.MakeWord(3, block.Live), 3}, l)
	_, ok = p.Leave(id)
	require.False(t, ok)
}

func TestFlush(t *testing.T) {
	p := newPen(t)
	require.Zero(t, p.Bytes())
	var live, cached []block.ID
	for i, size := range []int64{512, 1000, 1024, 4096} {
		id, b, _ := p.put(t, size)
		if i%2 == 0 {
			require.True(t, b.FreeHomed(0))
			cached = append(cached, id)
		} else {
			live = append(live, id)
		}
	}
	id, b := p.putAway(t, 512)
	require.True(t, b.FreeHomed(0))
	cached = append(cached, id)
	require.EqualValues(t, 2*unsafe.Sizeof(shard{}), p.Bytes())

	flush := func(all bool) (ids []block.ID) {
		p.Flush(all, func(l Leaver) {
			ids = append(ids, l.ID)
			got, _, _, _ := p.Get(1000)
			require.Zero(t, got, "closed meanwhile")
			require.False(t, p.table.At(l.ID).Word().Has(block.Homed))
		})
		return ids
	}
	require.ElementsMatch(t, cached, flush(false))
	require.Empty(t, flush(false))
	require.ElementsMatch(t, live, flush(true))
	require.Empty(t, flush(true))
	p.Drop()
	require.Zero(t, p.Bytes())
}

func BenchmarkGet(b *testing.B) {
	p := newPen(b)
	p.procs = NewProcs()
	p.shards[0].Store(&shard{proc: &p.procs.list[0]})
	_, blk, _ := p.put(b, 1000)
	gen := uint64(0)
	for b.Loop() {
		blk.FreeHomed(gen)
		_, _, gen, _ = p.Get(1000)
	}
}
