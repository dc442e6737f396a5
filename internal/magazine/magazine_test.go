package magazine

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/block"
)

const owner = 1

// home is a cache with a way to make blocks for it.
type home struct {
	*Cache
	slots block.SlotCache
}

func newHome() *home {
	t := new(block.Table)
	return &home{Cache: New(t, owner), slots: block.SlotCache{Table: t}}
}

// block makes a homed block in a state, in no slot yet.
func (h *home) block(t testing.TB, size int64, s block.State) (block.ID, *block.Block) {
	require.NoError(t, h.slots.Ensure(1))
	id, b := h.slots.Take()
	b.Size = size
	b.SetRequested(size)
	b.SetOwner(owner)
	b.SetWord(block.MakeWord(0, s|block.Homed))
	return id, b
}

// put homes a block on a processor; Wants makes the shard.
func (h *home) put(t testing.TB, proc int, size int64, s block.State) (block.ID, *block.Block, block.ID) {
	id, b := h.block(t, size, s)
	h.Wants(proc, size, false)
	return id, b, h.Home(proc, id, size)
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

func TestGetTakesWhatIsCached(t *testing.T) {
	h := newHome()
	id, b, evicted := h.put(t, 0, 1000, block.Cached)
	require.Zero(t, evicted)

	got, gb, gen := h.Get(0, 1000)
	require.Equal(t, id, got)
	require.Same(t, b, gb)
	require.EqualValues(t, 1, gen)
	require.Equal(t, block.MakeWord(1, block.Live|block.Homed), b.Word())

	got, _, _ = h.Get(0, 1000)
	require.Zero(t, got, "it is out")
	b.SetWord(b.Word().With(block.Cached))
	got, _, gen = h.Get(0, 1000)
	require.Equal(t, id, got, "it came home")
	require.EqualValues(t, 2, gen)
}

func TestGetMisses(t *testing.T) {
	for name, change := range map[string]func(*block.Block){
		"live":         func(b *block.Block) { b.SetWord(block.MakeWord(0, block.Live|block.Homed)) },
		"free":         func(b *block.Block) { b.SetWord(block.MakeWord(0, block.Free)) },
		"not homed":    func(b *block.Block) { b.SetWord(block.MakeWord(0, block.Cached)) },
		"used":         func(b *block.Block) { b.SetWord(block.MakeWord(0, block.Live|block.Homed|block.Used)) },
		"another's":    func(b *block.Block) { b.SetOwner(owner + 1) },
		"what matches": func(*block.Block) {},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome()
			id, b, _ := h.put(t, 0, 1000, block.Cached)
			change(b)
			want := block.ID(0)
			if name == "what matches" {
				want = id
			}
			word := b.Word()
			got, _, _ := h.Get(0, 1000)
			require.Equal(t, want, got)
			if want == 0 {
				require.Equal(t, word, b.Word(), "and it was left alone")
			}
		})
	}
	h := newHome()
	got, _, _ := h.Get(0, 1000)
	require.Zero(t, got, "no shard yet")
	h.put(t, 0, 1000, block.Cached)
	got, _, _ = h.Get(0, 1001)
	require.Zero(t, got, "another size")
}

func TestWantsTheSecondInARow(t *testing.T) {
	h := newHome()
	sizes := sizesOfOneSet(2)
	require.False(t, h.Wants(0, sizes[0], false))
	require.True(t, h.Wants(0, sizes[0], false))
	require.True(t, h.Wants(0, sizes[0], false), "and every further one")
	require.False(t, h.Wants(0, sizes[1], false), "another size of the set")
	require.False(t, h.Wants(0, sizes[0], false), "which is not in a row then")
	other := sizes[0] + 1
	h.Wants(0, other, false)
	require.True(t, h.Wants(0, sizes[0], false), "another set does not matter")
}

// A large size needs more misses, of all sizes.
func TestWantsLargeAfterAStreak(t *testing.T) {
	h := newHome()
	for range 2 {
		for i := range largeStreak {
			require.False(t, h.Wants(0, 2<<20, true), "miss %d", i)
		}
		require.True(t, h.Wants(0, 2<<20, true))
		require.True(t, h.Wants(0, 2<<20, true))
		h.Wants(0, 512, false) // of whatever set
	}
}

func TestHomeEvictsInTurn(t *testing.T) {
	h := newHome()
	sizes := sizesOfOneSet(3 * ways)
	var ids []block.ID
	for _, size := range sizes[:ways] {
		id, _, evicted := h.put(t, 0, size, block.Live)
		require.Zero(t, evicted)
		ids = append(ids, id)
	}
	var evicted []block.ID
	for _, size := range sizes[ways : 2*ways] {
		_, _, e := h.put(t, 0, size, block.Live)
		h.Table.At(e).SetWord(block.MakeWord(0, block.Live)) // as the caller does
		evicted = append(evicted, e)
	}
	require.ElementsMatch(t, ids, evicted, "each slot once")

	// A slot whose block is not homed any more is taken first.
	_, b, _ := h.put(t, 0, sizes[2*ways], block.Live)
	b.SetWord(block.MakeWord(0, block.Live))
	_, _, e := h.put(t, 0, sizes[2*ways+1], block.Live)
	require.Zero(t, e)
}

// Without a shard for the processor there is no place: the block that was to
// be homed is the one that loses.
func TestHomeWithoutShard(t *testing.T) {
	h := newHome()
	id, _ := h.block(t, 512, block.Live)
	require.Equal(t, id, h.Home(0, id, 512))
}

func TestShardsAreApart(t *testing.T) {
	if len(newHome().shards) < 2 {
		t.Skip("one processor")
	}
	h := newHome()
	h.put(t, 0, 1000, block.Cached)
	got, _, _ := h.Get(1, 1000)
	require.Zero(t, got)
	got, _, _ = h.Get(len(h.shards), 1000)
	require.NotZero(t, got, "any number of a processor will do")
}

func TestEachAndBytes(t *testing.T) {
	h := newHome()
	require.Zero(t, h.Bytes())
	var want []block.ID
	for _, size := range []int64{512, 1000, 1024, 4096} {
		id, _, _ := h.put(t, 0, size, block.Cached)
		want = append(want, id)
	}
	require.EqualValues(t, unsafe.Sizeof(shard{}), h.Bytes())
	seen := func(drop func(block.ID) bool) (ids []block.ID) {
		h.Each(func(id block.ID) bool { ids = append(ids, id); return drop(id) })
		return ids
	}
	require.ElementsMatch(t, want, seen(func(id block.ID) bool { return id == want[1] }))
	require.ElementsMatch(t, []block.ID{want[0], want[2], want[3]}, seen(func(block.ID) bool { return true }))
	require.Empty(t, seen(func(block.ID) bool { return true }))
	got, _, _ := h.Get(0, 512)
	require.Zero(t, got, "its slot was dropped")
}

// Goroutines take blocks and bring them home without a lock, while another
// one looks them through and takes them away: nobody ever holds the same.
func TestGetParallel(t *testing.T) {
	h := newHome()
	sizes := []int64{512, 1000, 1024}
	holders := map[block.ID]*atomic.Int32{}
	for proc := range 2 {
		for _, size := range sizes {
			for range 2 {
				id, _, _ := h.put(t, proc, size, block.Cached)
				holders[id] = new(atomic.Int32)
			}
		}
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 20_000 {
				size := sizes[r.IntN(len(sizes))]
				id, b, gen := h.Get(r.IntN(2), size)
				if id == 0 {
					continue
				}
				if b.Requested() != size || holders[id].Add(1) != 1 {
					t.Errorf("block %d went to two holders, or for a wrong size", id)
					return
				}
				holders[id].Add(-1)
				if w := block.MakeWord(gen, block.Live|block.Homed); !b.Swap(w, w.With(block.Cached)) {
					t.Errorf("block %d was taken from its holder", id)
					return
				}
			}
		})
	}
	wg.Go(func() { // as flushLocked does
		for range 2_000 {
			h.Each(func(id block.ID) bool {
				b := h.Table.At(id)
				if w := b.Word(); w.State() == block.Cached && b.Swap(w, w&^block.Homed) {
					if holders[id].Add(1) != 1 {
						t.Errorf("block %d was taken while it was out", id)
					}
					holders[id].Add(-1)
					b.SetWord(b.Word() | block.Homed)
				}
				return false
			})
		}
	})
	wg.Wait()
}

func BenchmarkGet(b *testing.B) {
	h := newHome()
	h.put(b, 0, 1000, block.Cached)
	for b.Loop() {
		_, blk, gen := h.Get(0, 1000)
		if blk != nil {
			blk.SetWord(block.MakeWord(gen, block.Cached|block.Homed))
		}
	}
}
