package magazine

import (
	"runtime/debug"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/testkit"
)

const owner = 1

// TestMain keeps the garbage collector from making stacks smaller: this moves them, and a
// goroutine is told by its stack.
func TestMain(m *testing.M) {
	debug.SetGCPercent(-1)
	m.Run()
}

// deep calls f from far deeper in the stack.
//
//go:noinline
func deep(depth int, f func()) byte {
	var pad [1 << 10]byte
	if depth == 0 {
		f()
	} else {
		pad[depth%len(pad)] = deep(depth-1, f)
	}
	return pad[0]
}

// pen is a cache with a way to make blocks for it.
type pen struct {
	Cache
	slots block.SlotCache
}

func newPen() *pen {
	deep(64, func() {}) // so that the stack does not grow later
	t := new(block.Table)
	p := &pen{slots: block.SlotCache{Table: t}}
	p.Init(t, owner)
	return p
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

// put homes a live block; a miss makes the shard.
func (p *pen) put(t testing.TB, size int64) (block.ID, *block.Block, Leaver) {
	id, b := p.block(t, size)
	_, _, _, why := p.Get(size)
	evicted, ok := p.Home(p.Missed(size, why).Shard(), id, b, block.Live, block.Long)
	require.True(t, ok)
	return id, b, evicted
}

// get returns the ID of the block that Get finds.
func (p *pen) get(size int64) block.ID {
	id, _, _, _ := p.Get(size)
	return id
}

// miss has a size miss, and reports whether it recurs.
func (p *pen) miss(t testing.TB, size int64, large bool) bool {
	id, _, _, why := p.Get(size)
	require.Zero(t, id)
	return p.Missed(size, why).Recurs(large)
}

// lose has a size miss because another goroutine took its block.
func (p *pen) lose(size int64) {
	var here byte
	p.Missed(size, lost|Miss(whose(&here)<<flagBits))
}

// mine returns the shard of the caller.
func (p *pen) mine() *shard {
	_, _, _, why := p.Get(1 << 40)
	return p.at(why)
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
	p := newPen()
	p.miss(t, 512, false)
	require.Zero(t, uintptr(unsafe.Pointer(p.shards[0]))%64)
}

func TestGet(t *testing.T) {
	p := newPen()
	require.Zero(t, p.get(1000), "no shard yet")
	id, b, evicted := p.put(t, 1000)
	require.Zero(t, evicted)
	require.Zero(t, p.get(1000), "it is out")

	require.True(t, b.FreeHomed(0))
	require.False(t, b.FreeHomed(0), "again")
	require.Zero(t, p.get(1001), "another size")
	got, addr, gen, why := p.Get(1000)
	require.Equal(t, id, got)
	require.Equal(t, b.Addr(), addr)
	require.EqualValues(t, 1, gen)
	require.Zero(t, why)
	require.Equal(t, block.MakeWord(1, block.Live|block.Homed), b.Word())

	require.False(t, b.FreeHomed(0), "the generation before")
	require.True(t, b.FreeHomed(1))
	_, _, gen, _ = p.Get(1000)
	require.EqualValues(t, 2, gen)
}

// A slot that is read before it changes leads to a block that is of another size by now,
// or of another heap; and sizes with the same set and tag do not get each other's blocks.
func TestGetByAStaleSlot(t *testing.T) {
	for name, change := range map[string]func(b *block.Block){
		"another size": func(b *block.Block) { b.SetRequested(2000) },
		"another heap": func(b *block.Block) { b.SetOwner(owner + 1) },
		"not at home":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPen()
			id, b, _ := p.put(t, 1000)
			set, _ := hash(1000)
			slot := &p.shards[0].sets[set][0]
			stale := slot.Load()
			_, ok := p.Leave(id)
			require.True(t, ok)
			require.Zero(t, slot.Load(), "who leaves empties the slot")
			slot.Store(stale)
			if change != nil {
				change(b)
				b.SetHome(block.Cached, 0, block.Long)
			}
			require.Zero(t, p.get(1000))
		})
	}
}

func TestRecursTheSecondInARow(t *testing.T) {
	p := newPen()
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
	p := newPen()
	for range 2 {
		for i := range largeStreak {
			require.False(t, p.miss(t, 2<<20, true), "miss %d", i)
		}
		require.True(t, p.miss(t, 2<<20, true))
		require.True(t, p.miss(t, 2<<20, true))
		p.miss(t, 512, true) // of whatever set
	}
}

// A hit is no miss.
func TestRecursNotByHits(t *testing.T) {
	p := newPen()
	_, b, _ := p.put(t, 2<<20) // the first miss
	for gen := range uint64(largeStreak) {
		require.True(t, b.FreeHomed(gen))
		require.NotZero(t, p.get(2<<20))
	}
	for i := range largeStreak - 1 {
		require.False(t, p.miss(t, 2<<20, true), "miss %d", i)
	}
	require.True(t, p.miss(t, 2<<20, true))
}

func TestHomeEvictsInTurn(t *testing.T) {
	p := newPen()
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

// Blocks of one size take each other's slots once in ways misses, each slot in its turn.
func TestHomeKeepsTheSize(t *testing.T) {
	p := newPen()
	var first, evicted []block.ID
	for range ways {
		id, _, _ := p.put(t, 1000)
		first = append(first, id)
	}
	for range ways * ways {
		id, b := p.block(t, 1000)
		e, ok := p.Home(0, id, b, block.Live, block.Long)
		require.Equal(t, e.ID != 0, ok)
		if ok {
			require.True(t, b.IsHomed())
			evicted = append(evicted, e.ID)
		}
	}
	require.ElementsMatch(t, first, evicted)
}

// Without a shard there is no place.
func TestHomeWithoutShard(t *testing.T) {
	p := newPen()
	id, b := p.block(t, 512)
	_, ok := p.Home(0, id, b, block.Live, block.Long)
	require.False(t, ok)
	require.Equal(t, block.MakeWord(0, block.Live), b.Word())
}

// After Shut nothing is found and nothing gets a home, whether goroutines have met or
// not; what has one leaves it.
func TestShut(t *testing.T) {
	for name, meet := range map[string]func(p *pen){
		"one shard":   func(*pen) {},
		"more shards": func(p *pen) { p.lose(1000) },
		"met later":   func(p *pen) { p.Shut(); p.lose(1000) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPen()
			_, b, _ := p.put(t, 1000)
			require.True(t, b.FreeHomed(0))
			meet(p)
			p.Shut()
			for range 3 {
				require.False(t, p.miss(t, 1000, false))
			}
			id, live := p.block(t, 1000)
			_, ok := p.Home(0, id, live, block.Live, block.Long)
			require.False(t, ok)
			n := 0
			p.Flush(true, func(Leaver) { n++ })
			require.Equal(t, 1, n)
			p.Drop()
			require.False(t, p.miss(t, 1000, false))
			require.False(t, p.miss(t, 1000, false), "it is shut for good")
		})
	}
}

func TestHas(t *testing.T) {
	p := newPen()
	require.False(t, p.Has(1000))
	_, b, _ := p.put(t, 1000)
	require.False(t, p.Has(1000), "it is out")
	require.True(t, b.FreeHomed(0))
	require.True(t, p.Has(1000))
	require.False(t, p.Has(1001))
	p.lose(512)
	require.Zero(t, p.get(1000), "it is of another shard")
	require.True(t, p.Has(1000))
}

// In whatever order the blocks of a set leave, the slots in use are its first, and the
// others are found.
func TestSlotsInUseAreFirst(t *testing.T) {
	r := testkit.Rand(t)
	for range 50 {
		p := newPen()
		sizes := sizesOfOneSet(ways)
		set, _ := hash(sizes[0])
		var homed []block.ID
		for range 100 {
			switch size := sizes[r.IntN(ways)]; {
			case len(homed) < ways && r.IntN(2) == 0:
				id, _, evicted := p.put(t, size)
				require.Zero(t, evicted)
				homed = append(homed, id)
			case len(homed) > 0:
				i := r.IntN(len(homed))
				l, ok := p.Leave(homed[i])
				require.True(t, ok)
				require.Equal(t, homed[i], l.ID)
				homed = slices.Delete(homed, i, i+1)
			}
			for n := range ways {
				require.Equal(t, n < len(homed), p.mine() != nil && p.mine().sets[set][n].Load() != 0, n)
			}
			for _, id := range homed {
				b := p.table.At(id)
				require.True(t, b.FreeHomed(b.Word().Gen()))
				require.Equal(t, id, p.get(b.Requested()))
			}
		}
		var out []block.ID
		p.Flush(true, func(l Leaver) { out = append(out, l.ID) })
		require.ElementsMatch(t, homed, out)
	}
}

// GetEnded takes what Get leaves alone as its stay ends.
func TestGetEnded(t *testing.T) {
	p := newPen()
	none := func(why Miss) {
		id, b, note := p.GetEnded(1000, why)
		require.Equal(t, []any{block.ID(0), (*block.Block)(nil), uint8(0)}, []any{id, b, note})
	}
	none(0)
	id, b := p.block(t, 1000)
	p.miss(t, 1000, false)
	_, ok := p.Home(0, id, b, block.Cached, block.Stay{Note: 5})
	require.True(t, ok)
	got, _, _, why := p.Get(1000)
	require.Zero(t, got)
	require.True(t, why.Ends())
	got, same, note := p.GetEnded(1000, why)
	require.Equal(t, id, got)
	require.Same(t, b, same)
	require.EqualValues(t, 5, note)
	none(why)
	l, ok := p.Leave(id)
	require.True(t, ok)
	require.Equal(t, Leaver{id, block.MakeWord(1, block.Live), 1}, l)
}

// Blocks of all sets of two shards leave their homes, and nothing is left of them.
func TestAllHomes(t *testing.T) {
	p := newPen()
	sizes := map[uint]int64{}
	for size := int64(512); len(sizes) < setCount; size += 512 {
		set, _ := hash(size)
		sizes[set] = size
	}
	var in, out []block.ID
	for shards := range 2 {
		if shards > 0 {
			p.lose(512)
		}
		for _, size := range sizes {
			id, b, evicted := p.put(t, size)
			require.Zero(t, evicted)
			require.EqualValues(t, slices.Index(p.shards, p.mine()), ShardOf(b))
			in = append(in, id)
		}
	}
	require.Len(t, p.shards, 2)
	require.Contains(t, in, block.ID(1), "the first block of a table, too")
	p.Flush(true, func(l Leaver) { out = append(out, l.ID) })
	require.ElementsMatch(t, in, out)
	p.Each(func(id block.ID, _ *block.Block) { t.Errorf("block %d is in a slot", id) })
}

func TestFlush(t *testing.T) {
	p := newPen()
	require.Zero(t, p.Bytes())
	var live, cached []block.ID
	put := func(size int64, free bool) {
		id, b, _ := p.put(t, size)
		if free {
			require.True(t, b.FreeHomed(0))
			cached = append(cached, id)
		} else {
			live = append(live, id)
		}
	}
	for i, size := range []int64{512, 1000, 1024, 4096} {
		put(size, i%2 == 0)
	}
	require.EqualValues(t, unsafe.Sizeof(shard{}), p.Bytes())
	p.lose(512)
	put(512, true) // in another shard
	require.Greater(t, p.Bytes(), int64(2*unsafe.Sizeof(shard{})))

	flush := func(all bool) (ids []block.ID) {
		p.Flush(all, func(l Leaver) {
			ids = append(ids, l.ID)
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
	p := newPen()
	_, blk, _ := p.put(b, 1000)
	gen := uint64(0)
	for b.Loop() {
		blk.FreeHomed(gen)
		_, _, gen, _ = p.Get(1000)
	}
}
