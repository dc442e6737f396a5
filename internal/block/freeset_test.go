package block

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/sizeclass"
	"github.com/cupool/cupool/internal/testkit"
)

// setUp returns an empty set and a function that makes a free block in no
// set.
func setUp() (*FreeSet, func(addr uint64, size int64) (ID, *Block)) {
	tab := new(Table)
	slots := &SlotCache{Table: tab}
	return &FreeSet{Table: tab}, func(addr uint64, size int64) (ID, *Block) {
		if err := slots.Ensure(1); err != nil {
			panic(err)
		}
		id, b := slots.Take()
		b.addr = addr
		b.Size = size
		b.SetWord(MakeWord(0, Free))
		return id, b
	}
}

// sortedBlocks is the reference: the free blocks in a sorted slice.
type sortedBlocks []refBlock

type refBlock struct {
	size int64
	seg  uint32
	addr uint64
	id   ID
}

func (r refBlock) compare(o refBlock) int {
	return cmp.Or(cmp.Compare(r.size, o.size), r.place(o))
}

func (r refBlock) place(o refBlock) int {
	return cmp.Or(cmp.Compare(r.seg, o.seg), cmp.Compare(r.addr, o.addr))
}

func (s *sortedBlocks) insert(b refBlock) {
	i, _ := slices.BinarySearchFunc(*s, b, refBlock.compare)
	*s = slices.Insert(*s, i, b)
}

func (s sortedBlocks) bestFit(size int64) ID {
	i, _ := slices.BinarySearchFunc(s, refBlock{size: size}, refBlock.compare)
	if i == len(s) {
		return 0
	}
	return s[i].id
}

// firstFit returns the block of at least size and less than below bytes in the first segment, at
// the lowest address there.
func (s sortedBlocks) firstFit(size, below int64) ID {
	var first refBlock
	for _, b := range s {
		if b.size >= size && b.size < below && (first.id == 0 || b.place(first) < 0) {
			first = b
		}
	}
	return first.id
}

func TestFreeSetAgainstSortedSlice(t *testing.T) {
	for name, size := range map[string]func(*rand.Rand) int64{
		"few sizes":        func(r *rand.Rand) int64 { return (1 + r.Int64N(4)) * sizeclass.Quantum },
		"one bin":          func(r *rand.Rand) int64 { return 1<<20 + r.Int64N(64)*sizeclass.Quantum },
		"all sizes":        func(r *rand.Rand) int64 { return (1 + r.Int64N(1<<50)>>r.IntN(50)) * sizeclass.Quantum },
		"the same address": func(r *rand.Rand) int64 { return (1 + r.Int64N(1000)) * sizeclass.Quantum },
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			set, free := setUp()
			var ref sortedBlocks
			for i := range 20_000 {
				if n := len(ref); n > 0 && (r.IntN(2) == 0 || n > 300) {
					j := r.IntN(n)
					set.Remove(ref[j].id, set.Table.At(ref[j].id))
					ref = slices.Delete(ref, j, j+1)
				} else {
					b := refBlock{size: size(r), addr: uint64(i) * sizeclass.Quantum}
					if r.IntN(2) == 0 {
						b.addr = 1<<50 - b.addr // not only in ascending order
					}
					var block *Block
					b.id, block = free(b.addr, b.size)
					b.seg = uint32(r.IntN(3))
					block.Seg = b.seg
					ref.insert(b)
					set.Insert(b.id, block)
				}
				want := size(r)
				require.Equal(t, ref.bestFit(want), set.BestFit(want), "step %d: best fit for %d", i, want)
				if i%100 == 0 {
					compareSets(t, ref, set)
				}
				if i > 5000 && i%10 == 0 {
					below := []int64{2 * want, want + sizeclass.Quantum, math.MaxInt64}[r.IntN(3)]
					require.Equal(t, ref.firstFit(want, below), set.FirstFit(want, below), "step %d: first fit for %d below %d", i, want, below)
				}
			}
			compareSets(t, ref, set)
			for _, b := range ref {
				set.Remove(b.id, set.Table.At(b.id))
			}
			compareSets(t, nil, set)
			set.Insert(free(0, sizeclass.Quantum/2))
			require.Zero(t, set.BestFit(math.MaxInt64))
		})
	}
}

// Every order of a few blocks, from the first of the table and the smallest sizes on, each of
// which leaves alone, or all of them at once.
func TestFewBlocks(t *testing.T) {
	const n = 4
	var try func(order []int)
	try = func(order []int) {
		if len(order) < n {
			for i := range n {
				if !slices.Contains(order, i) {
					try(append(slices.Clip(order), i))
				}
			}
			return
		}
		for leaves := range n {
			for _, sweep := range []bool{false, true} {
				set, _ := setUp()
				slots := &SlotCache{Table: set.Table}
				ids, _ := set.Table.refill(nil, n) // from 1 on
				require.EqualValues(t, 1, ids[0])
				var ref sortedBlocks
				for i, id := range ids {
					b := slots.Table.At(id)
					b.addr, b.Size = uint64(order[i]+1)<<20, int64(order[i]/2+1)*sizeclass.Quantum/2
					b.SetWord(MakeWord(0, Free))
					ref.insert(refBlock{id: id, size: b.Size, addr: b.addr})
					set.Insert(id, b)
				}
				gone := ref[leaves]
				ref = slices.Delete(ref, leaves, leaves+1)
				if sweep {
					set.Table.At(gone.id).SetWord(MakeWord(0, Gap))
					set.Sweep(1)
				} else {
					set.Remove(gone.id, set.Table.At(gone.id))
				}
				compareSets(t, ref, set)
			}
		}
	}
	try(nil)
}

// The trees stay low, also where blocks come in their order and others leave.
func TestFreeSetStaysLow(t *testing.T) {
	set, free := setUp()
	var depth func(id ID) int
	depth = func(id ID) int {
		if id == 0 {
			return 0
		}
		n := set.Table.At(id)
		return 1 + max(depth(n.link[0]), depth(n.link[1]))
	}
	low := func(when string) {
		require.Less(t, depth(set.roots[sizeclass.Bin(1<<20)]), 40, when)
	}
	var ids []ID
	for i := range 1 << 13 {
		id, b := free(uint64(i)<<20, 1<<20)
		set.Insert(id, b)
		ids = append(ids, id)
	}
	low("in ascending order")
	for i, id := range ids {
		if i%2 == 0 {
			set.Remove(id, set.Table.At(id))
		}
	}
	low("half of them left")
	for i, id := range ids {
		if i%4 == 1 {
			set.Table.At(id).SetWord(MakeWord(0, Gap))
		}
	}
	set.Sweep(len(ids) / 4)
	low("a quarter was swept out")
}

func compareSets(t *testing.T, ref sortedBlocks, set *FreeSet) {
	t.Helper()
	require.NoError(t, set.Check())
	var got, want []ID
	var bytes int64
	set.Each(func(id ID, _ *Block) bool { got = append(got, id); return true })
	for _, b := range ref {
		want = append(want, b.id)
		bytes += b.size
	}
	require.Equal(t, want, got, "order by (size, address)")
	require.Equal(t, len(ref), set.Len())
	require.Equal(t, bytes, set.Bytes())
	largest := ID(0)
	if len(ref) > 0 {
		largest = ref[len(ref)-1].id
	}
	require.Equal(t, largest, set.Largest())
}

func TestEachFrom(t *testing.T) {
	const q = sizeclass.Quantum
	set, free := setUp()
	for i := range int64(2000) {
		id, b := free(uint64(i)<<30, (i+1)*q)
		set.Insert(id, b)
	}
	for _, from := range []int64{1, 31, 32, 33, 1000, 2000} {
		var got []int64
		set.EachFrom(from*q, func(_ ID, b *Block) bool { got = append(got, b.Size/q); return true })
		require.IsIncreasing(t, append([]int64{0}, got...))
		require.EqualValues(t, 2000, got[len(got)-1])
		require.LessOrEqual(t, got[0], from, "all that are large enough")
		require.GreaterOrEqual(t, got[0], from-from/32, "and few that are not")
	}
	set.EachFrom(1<<40, func(ID, *Block) bool { t.Error("larger than all"); return true })
	n := 0
	set.Each(func(ID, *Block) bool { n++; return n < 3 })
	require.Equal(t, 3, n, "until it is told to stop")
}

// B3 broken on purpose, in every way that the set itself can see.
func TestFreeSetCheck(t *testing.T) {
	for name, corrupt := range map[string]func(*FreeSet, *Block){
		"a live block":        func(_ *FreeSet, b *Block) { b.SetWord(MakeWord(1, Live)) },
		"a size that changed": func(_ *FreeSet, b *Block) { b.Size = 900 * sizeclass.Quantum },
		"a wrong count":       func(f *FreeSet, _ *Block) { f.count++ },
		"a wrong sum":         func(f *FreeSet, _ *Block) { f.bytes-- },
		"a lost bin":          func(f *FreeSet, b *Block) { f.clearBin(sizeclass.Bin(b.Size)) },
		"a wrong first":       func(_ *FreeSet, b *Block) { b.setFirst(0) },
	} {
		t.Run(name, func(t *testing.T) {
			set, free := setUp()
			var second *Block
			for i := range uint64(5) {
				id, b := free(i<<20, 40*sizeclass.Quantum)
				set.Insert(id, b)
				if i == 1 {
					second = b
				}
			}
			require.NotZero(t, set.FirstFit(sizeclass.Quantum, math.MaxInt64))
			require.NoError(t, set.Check())
			corrupt(set, second)
			require.ErrorContains(t, set.Check(), "B3")
		})
	}
}

// First fit looks at a block for each bin and at few more, however many blocks are free.
func TestFirstFitLooksAtFew(t *testing.T) {
	const n, calls, q = 100_000, 1000, sizeclass.Quantum
	r := testkit.Rand(t)
	for name, size := range map[string]func() int64{
		"one size":  func() int64 { return 2 << 20 },
		"one bin":   func() int64 { return 64<<20 + r.Int64N(4<<10)*q },
		"all sizes": func() int64 { return 1<<20 + r.Int64N(64<<20/q)*q },
	} {
		t.Run(name, func(t *testing.T) {
			set, free := setUp()
			for _, i := range r.Perm(n) {
				set.Insert(free(uint64(i+1)<<30, size()))
			}
			looked, bins := 0, 0
			Hook = func(Step) { looked++ }
			defer func() { Hook = nil }()
			require.NotZero(t, set.FirstFit(q, math.MaxInt64))
			require.Equal(t, lock.Invariants, looked >= n, "all of them the first time")
			looked = 0
			for range calls { // what is left of a block is free again
				for bin := set.nextBin(0); bin >= 0; bin = set.nextBin(bin + 1) {
					bins++
				}
				want := (1 + r.Int64N(2000)) * q
				id := set.FirstFit(want, math.MaxInt64)
				b := set.Table.At(id)
				set.Remove(id, b)
				if b.addr, b.Size = b.addr+uint64(want), b.Size-want; b.Size > 0 {
					set.Insert(id, b)
				}
			}
			require.Equal(t, lock.Invariants, looked > 0)
			require.Less(t, looked, bins+calls*150, "two trees of %d blocks change at each call", n)
			require.NoError(t, set.Check())
		})
	}
}

// What is no longer Free leaves the set in one pass, and nothing else does.
func TestSweep(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		set, free := setUp()
		var ref sortedBlocks
		for i := range 1 + r.IntN(200) {
			b := refBlock{size: 1<<20 + r.Int64N(4)*40*sizeclass.Quantum, addr: uint64(i+1) << 30} // in several bins
			var blk *Block
			b.id, blk = free(b.addr, b.size)
			ref.insert(b)
			set.Insert(b.id, blk)
		}
		some := r.IntN(4) // of three
		ref = slices.DeleteFunc(ref, func(b refBlock) bool {
			if r.IntN(3) >= some {
				return false
			}
			set.Table.At(b.id).SetWord(MakeWord(0, Gap))
			return true
		})
		before := set.FirstFit(sizeclass.Quantum, math.MaxInt64)
		require.NotZero(t, before)
		set.Sweep(set.Len() - len(ref))
		compareSets(t, ref, set)
		require.Equal(t, ref.firstFit(1<<20, math.MaxInt64), set.FirstFit(1<<20, math.MaxInt64))
	}
	set, _ := setUp()
	set.Sweep(0)
	compareSets(t, nil, set)
}

// Of blocks of one size, the one of the first segment comes first, wherever that
// lies, so that segments that came later empty.
func TestFreeSetOrder(t *testing.T) {
	set, free := setUp()
	var ids []ID
	for i, addr := range []uint64{9 << 20, 5 << 20, 7 << 20} {
		id, b := free(addr, 4096)
		b.Seg = uint32(i)
		set.Insert(id, b)
		ids = append(ids, id)
	}
	for _, id := range ids {
		require.Equal(t, id, set.BestFit(4096))
		set.Remove(id, set.Table.At(id))
	}
}
