package block

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/sizeclass"
)

// arena is one segment with its free set, and a minimal allocator over them.
type arena struct {
	Segment
	tab   *Table
	slots SlotCache
	free  FreeSet
}

func newArena(t *testing.T, size int64) *arena {
	tab := new(Table)
	a := &arena{Segment: Segment{Base: 1 << 30, Size: size, Index: 2, Owner: 3}, tab: tab, slots: SlotCache{Table: tab}, free: FreeSet{Table: tab}}
	require.NoError(t, a.slots.Ensure(2))
	a.free.Insert(a.Begin(&a.slots))
	return a
}

// alloc cuts size bytes off the best fit.
func (a *arena) alloc(t *testing.T, size int64) ID {
	id := a.free.BestFit(size)
	require.NotZero(t, id)
	b := a.tab.At(id)
	a.free.Remove(id, b)
	if b.Size > size {
		require.NoError(t, a.slots.Ensure(1))
		a.free.Insert(a.Split(id, b, size, &a.slots))
	}
	b.SetWord(MakeWord(b.Word().Gen()+1, Live))
	return id
}

func (a *arena) release(id ID) (n, bytes int64) {
	id, b, n, bytes := a.Coalesce(id, a.tab.At(id), &a.free, &a.slots)
	a.free.Insert(id, b)
	return n, bytes
}

func TestSegmentSplitAndCoalesce(t *testing.T) {
	for name, tc := range map[string]struct {
		frees       string // of the blocks a, b, c, in order
		want        string
		taken, more int64 // neighbours and bytes that the last free took in
	}{
		"alone":                {"b", "[Live 2M][Free 3M][Live 4M][Free 11M]", 0, 0},
		"with the left":        {"ab", "[Free 5M][Live 4M][Free 11M]", 1, 2 << 20},
		"with the right":       {"c", "[Live 2M][Live 3M][Free 15M]", 1, 11 << 20},
		"with both":            {"acb", "[Free 20M]", 2, 17 << 20},
		"not across a live":    {"ac", "[Free 2M][Live 3M][Free 15M]", 1, 11 << 20},
		"left to right":        {"abc", "[Free 20M]", 2, 16 << 20},
		"right to left":        {"cba", "[Free 20M]", 1, 18 << 20},
		"the first, with next": {"ba", "[Free 5M][Live 4M][Free 11M]", 1, 3 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, 20<<20)
			ids := map[rune]ID{'a': a.alloc(t, 2<<20), 'b': a.alloc(t, 3<<20), 'c': a.alloc(t, 4<<20)}
			require.Equal(t, "[Live 2M][Live 3M][Live 4M][Free 11M]", a.Layout(a.tab))
			var n, bytes int64
			for _, name := range tc.frees {
				n, bytes = a.release(ids[name])
				require.NoError(t, a.Check(a.tab, sizeclass.Quantum))
				require.NoError(t, a.free.Check())
			}
			require.Equal(t, tc.want, a.Layout(a.tab))
			require.Equal(t, tc.taken, n)
			require.Equal(t, tc.more, bytes)
			require.Equal(t, tc.want == "[Free 20M]", a.IsWhollyFree(a.tab))
		})
	}
}

// Pending and cached neighbours hold memory that is not free.
func TestCoalesceOnlyFree(t *testing.T) {
	for _, s := range []State{Live, Cached, Pending} {
		a := newArena(t, 8<<20)
		left, mid, right := a.alloc(t, 2<<20), a.alloc(t, 2<<20), a.alloc(t, 4<<20)
		a.tab.At(left).SetWord(MakeWord(1, s))
		a.tab.At(right).SetWord(MakeWord(1, s))
		n, _ := a.release(mid)
		require.Zero(t, n)
		require.Equal(t, strings.ReplaceAll("[X 2M][Free 2M][X 4M]", "X", s.String()), a.Layout(a.tab))
	}
}

func TestSegmentExtend(t *testing.T) {
	a := newArena(t, 4<<20)
	live := a.alloc(t, 4<<20)
	grow := func(size int64) {
		require.NoError(t, a.slots.Ensure(1))
		id, _ := a.Extend(size, &a.slots)
		a.release(id) // merges with a free tail
		require.NoError(t, a.Check(a.tab, sizeclass.Quantum))
		require.NoError(t, a.free.Check())
	}
	grow(2 << 20)
	require.Equal(t, "[Live 4M][Free 2M]", a.Layout(a.tab))
	grow(6 << 20)
	require.Equal(t, "[Live 4M][Free 8M]", a.Layout(a.tab))
	require.EqualValues(t, 12<<20, a.Size)
	a.release(live)
	require.Equal(t, "[Free 12M]", a.Layout(a.tab))

	var empty Segment // one that has no memory yet
	require.NoError(t, a.slots.Ensure(1))
	id, b := empty.Extend(2<<20, &a.slots)
	require.Equal(t, empty.First, id)
	require.Equal(t, empty.Last, id)
	require.EqualValues(t, 2<<20, b.Size)
	require.NoError(t, empty.Check(a.tab, sizeclass.Quantum))
}

func TestSegmentFind(t *testing.T) {
	a := newArena(t, 20<<20)
	first, second := a.alloc(t, 2<<20), a.alloc(t, 3<<20)
	for _, tc := range []struct {
		off  uint64
		want ID
	}{{0, first}, {1, first}, {2<<20 - 1, first}, {2 << 20, second}, {5<<20 - 1, second}} {
		id, b := a.Find(a.tab, a.Base+tc.off)
		require.Equal(t, tc.want, id, "offset %d", tc.off)
		require.Same(t, a.tab.At(id), b)
	}
	id, b := a.Find(a.tab, a.Base+20<<20)
	require.Zero(t, id)
	require.Nil(t, b)
}

func TestSegmentRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	a := newArena(t, 64<<20)
	var live []ID
	for range 20_000 {
		size := (1 + r.Int64N(1<<11)) * sizeclass.Quantum
		if r.IntN(2) == 0 && a.free.BestFit(size) != 0 {
			live = append(live, a.alloc(t, size))
		} else if n := len(live); n > 0 {
			i := r.IntN(n)
			a.release(live[i])
			live[i] = live[n-1]
			live = live[:n-1]
		}
		require.NoError(t, a.Check(a.tab, sizeclass.Quantum))
		require.NoError(t, a.free.Check())
	}
	for _, id := range live {
		a.release(id)
	}
	require.Equal(t, "[Free 64M]", a.Layout(a.tab), "everything merges again")
}

// Every rule that the segment checks, broken on purpose. The segment is
// [Live 2M][Free 3M][Live 4M][Free 11M].
func TestSegmentCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		rule    string
		corrupt func(a *arena, first, hole, third, rest *Block)
	}{
		"a gap":                  {"B1", func(_ *arena, _, hole, _, _ *Block) { hole.addr += 512 }},
		"an overlap":             {"B1", func(_ *arena, first, _, _, _ *Block) { first.Size += 512 }},
		"a wrong back link":      {"B1", func(a *arena, _, _, third, _ *Block) { third.Prev = a.First }},
		"a tail that is cut":     {"B1", func(_ *arena, _, _, third, _ *Block) { third.Next = 0 }},
		"a tail that sticks out": {"B1", func(_ *arena, _, _, _, rest *Block) { rest.Size += 512 }},
		"a block left out": {"B1", func(a *arena, first, _, third, _ *Block) {
			first.Next = a.tab.At(first.Next).Next
			third.Prev = a.First
		}},
		"a wrong end":     {"B1", func(a *arena, _, _, _, _ *Block) { a.Last = a.First }},
		"free neighbours": {"B2", func(_ *arena, first, _, _, _ *Block) { first.SetWord(MakeWord(1, Free)) }},
		"an odd size":     {"B4", func(_ *arena, _, hole, third, _ *Block) { hole.Size -= 8; third.addr -= 8; third.Size += 8 }},
		"an empty block": {"B4", func(_ *arena, first, hole, _, _ *Block) {
			hole.addr = first.Addr()
			first.Size, hole.Size = 0, 5<<20
		}},
		"an unaligned segment": {"B4", func(a *arena, first, _, _, _ *Block) { a.Base += 8; first.addr += 8 }},
		"another segment":      {"B5", func(_ *arena, _, _, third, _ *Block) { third.Seg++ }},
		"another owner":        {"B5", func(_ *arena, _, _, third, _ *Block) { third.SetOwner(9) }},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, 20<<20)
			ids := []ID{a.alloc(t, 2<<20), a.alloc(t, 3<<20), a.alloc(t, 4<<20)}
			a.release(ids[1])
			require.Equal(t, "[Live 2M][Free 3M][Live 4M][Free 11M]", a.Layout(a.tab))
			require.NoError(t, a.Check(a.tab, sizeclass.Quantum))
			third := a.tab.At(ids[2])
			tc.corrupt(a, a.tab.At(ids[0]), a.tab.At(ids[1]), third, a.tab.At(third.Next))
			require.ErrorContains(t, a.Check(a.tab, sizeclass.Quantum), tc.rule)
		})
	}
}
