package epoch

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/testkit"
)

const little = 512 // bytes

// collect is Pending.Collect that returns the blocks in the order in which they
// came.
func collect(p *Pending) (ids []block.ID) {
	p.Collect(func(id block.ID, _ *block.Block) { ids = append(ids, id) })
	return ids
}

// carried returns how many blocks and sets name each stream.
func (p *Pending) names(streams int) []int {
	return append(slices.Clone(p.Carried()), make([]int, streams)...)[:streams]
}

func TestRecord(t *testing.T) {
	g := newRig(4)
	g.clocks[3].End()
	p := g.pending()
	_, b := g.block(little)
	require.False(t, p.Names(0))
	p.Record(b, g.clocks[3])
	require.Zero(t, b.Uses(), "a stream that has ended is done with the block")
	for range 2 {
		p.Record(b, g.clocks[1])
		require.EqualValues(t, 2, b.Uses())
	}
	require.Equal(t, []int{0, 1, 0, 0}, p.names(4))
	for range 2 {
		p.Record(b, g.clocks[2])
		p.Record(b, g.clocks[0])
		p.Record(b, g.clocks[3])
	}
	require.NotZero(t, b.Uses()&manyUses)
	require.Equal(t, g.clocks[1], p.set(b).clocks[0])
	require.Len(t, p.set(b).clocks, 3)
	require.Equal(t, []int{1, 1, 1, 0}, p.names(4))
	require.True(t, p.Names(2))
	p.Forget(b)
	require.Zero(t, b.Uses())
	require.Equal(t, []int{0, 0, 0, 0}, p.names(4))

	_, c := g.block(little) // the set is used again, empty
	p.Record(c, g.clocks[0])
	p.Record(c, g.clocks[2])
	require.Len(t, p.sets, 1)
	require.Equal(t, []*Clock{g.clocks[0], g.clocks[2]}, p.set(c).clocks)
	p.Forget(c)
	_, one := g.block(little)
	p.Record(one, g.clocks[2])
	p.Forget(one)
	require.Equal(t, []int{0, 0, 0, 0}, p.names(4))
}

// TestRecordForgets: a block that lives on names streams that have ended until it is used on
// another one, and no longer.
func TestRecordForgets(t *testing.T) {
	g := newRig(5)
	p := g.pending()
	_, b := g.block(little)
	p.Record(b, g.clocks[0])
	g.clocks[0].End()
	p.Record(b, g.clocks[1])
	require.EqualValues(t, 2, b.Uses())
	require.Equal(t, []int{0, 1, 0, 0, 0}, p.names(5))
	p.Record(b, g.clocks[2])
	p.Record(b, g.clocks[3])
	g.clocks[1].End()
	g.clocks[3].End()
	require.Equal(t, []int{0, 1, 1, 1, 0}, p.names(5))
	p.Record(b, g.clocks[4])
	require.Equal(t, []*Clock{g.clocks[2], g.clocks[4]}, p.set(b).clocks)
	require.Equal(t, []int{0, 0, 1, 0, 1}, p.names(5))
	p.Forget(b)
	require.Equal(t, []int{0, 0, 0, 0, 0}, p.names(5))
}

// TestAdd: a block waits for every stream that was recorded on it and has not
// ended, and comes when all are done with it.
func TestAdd(t *testing.T) {
	g := newRig(3)
	p := g.pending()
	one, b1 := g.block(little)
	p.Record(b1, g.clocks[0])
	require.True(t, p.Add(one, b1))
	both, b2 := g.block(2 * little)
	p.Record(b2, g.clocks[0])
	p.Record(b2, g.clocks[1])
	require.True(t, p.Add(both, b2))
	require.EqualValues(t, 3*little, p.Bytes())
	require.Empty(t, collect(p))

	g.clocks[0].Over(g.clocks[0].Mark())
	require.Equal(t, []block.ID{one}, collect(p))
	require.EqualValues(t, 2*little, p.Bytes())
	require.True(t, p.Names(0), "the set names it until all are done")
	g.clocks[1].Over(g.clocks[1].Mark())
	require.Equal(t, []block.ID{both}, collect(p))
	require.Zero(t, p.Bytes())
	require.Zero(t, b2.Uses())
	require.False(t, p.Names(0) || p.Names(1))

	late, b3 := g.block(little)
	p.Record(b3, g.clocks[1])
	p.Record(b3, g.clocks[2])
	g.clocks[1].End()
	g.clocks[2].End()
	require.False(t, p.Add(late, b3), "both have ended")
	require.Zero(t, p.Bytes())
	require.Zero(t, b3.Uses())
	_, b4 := g.block(little)
	b4.SetUses(3) // recorded before the stream ended
	p.carry(2, 1)
	require.False(t, p.Add(late, b4))
	require.False(t, p.Names(2))
}

// TestEagerEvents: a large block has its event at once, small ones share one.
func TestEagerEvents(t *testing.T) {
	g := newRig(1)
	p := g.pending()
	add := func(size int64) {
		id, b := g.block(size)
		p.Record(b, g.clocks[0])
		require.True(t, p.Add(id, b))
	}
	for range batchBlocks - 1 {
		add(little)
	}
	require.Zero(t, g.events.Recorded.Load())
	add(little)
	require.EqualValues(t, 1, g.events.Recorded.Load())
	add(little)
	require.EqualValues(t, 1, g.events.Recorded.Load(), "of another epoch")
	add(eagerBytes)
	require.EqualValues(t, 2, g.events.Recorded.Load())
	g.d.complete(1)
	require.NoError(t, p.Advance(Peek))
	require.Len(t, collect(p), batchBlocks)
	g.d.complete(2)
	require.NoError(t, p.Advance(Peek))
	require.Len(t, collect(p), 2)
	require.NoError(t, p.Advance(Force))
	require.EqualValues(t, 2, g.events.Recorded.Load(), "nobody waits")
}

// TestOldest: the oldest blocks are waited for, no more than are needed, and none that has
// too few events behind.
func TestOldest(t *testing.T) {
	g := newRig(2)
	p := g.pending()
	for range 6 {
		for _, k := range g.clocks[:2] {
			id, b := g.block(eagerBytes)
			p.Record(b, k)
			require.True(t, p.Add(id, b))
		}
	}
	for _, tc := range []struct {
		need   int64
		behind int
		want   []uint64 // epochs, by clock
	}{
		{need: 0, behind: 0},
		{need: 1, behind: 0, want: []uint64{1}},
		{need: eagerBytes, behind: 5, want: []uint64{1}},
		{need: eagerBytes, behind: 6},
		{need: 2*eagerBytes + 1, behind: 0, want: []uint64{3}},
		{need: 100 * eagerBytes, behind: 4, want: []uint64{2, 2}},
		{need: 7 * eagerBytes, behind: 0, want: []uint64{6, 1}},
	} {
		var want []Point
		for i, epoch := range tc.want {
			want = append(want, Point{g.clocks[i], epoch})
		}
		require.Equal(t, want, p.Oldest(tc.need, tc.behind), "%+v", tc)
	}
}

// TestPop: what waits for one stream comes free, up to an epoch, or all.
func TestPop(t *testing.T) {
	g := newRig(3)
	p := g.pending()
	var ids []block.ID
	done := func(id block.ID, _ *block.Block) { ids = append(ids, id) }
	var want []block.ID
	for range 3 {
		id, b := g.block(little)
		p.Record(b, g.clocks[0])
		require.True(t, p.Add(id, b))
		want = append(want, id)
		g.clocks[0].Mark()
	}
	other, b := g.block(little)
	p.Record(b, g.clocks[0])
	p.Record(b, g.clocks[1])
	require.True(t, p.Add(other, b))
	p.Pop(g.clocks[2], 99, 0, done)
	require.Empty(t, ids, "nothing waits for it")
	p.Pop(g.clocks[0], 2, 7, done)
	require.Equal(t, want[:2], ids)
	require.EqualValues(t, 7, p.Table.At(want[1]).GivenBack(), "the later work of the heap's stream comes after it since then")
	require.Zero(t, p.Table.At(want[2]).GivenBack())
	waits := map[*Clock]int{}
	p.Each(func(k *Clock, epoch uint64, id block.ID) { waits[k]++ })
	require.Equal(t, map[*Clock]int{g.clocks[0]: 2, g.clocks[1]: 1}, waits)
	p.End(g.clocks[0], done)
	require.Equal(t, want, ids)
	require.Nil(t, p.find(g.clocks[0]))
	p.End(g.clocks[1], done)
	require.Equal(t, append(want, other), ids)
	p.End(g.clocks[1], done)
	require.Zero(t, p.Bytes())
	require.Equal(t, []int{0, 0, 0}, p.names(3))
}

// TestMove: blocks and waits that go to another heap are sorted by epoch there.
func TestMove(t *testing.T) {
	g := newRig(2)
	from, to := g.pending(), g.pending()
	add := func(p *Pending, clocks ...*Clock) block.ID {
		id, b := g.block(little)
		for _, k := range clocks {
			p.Record(b, k)
		}
		require.True(t, p.Add(id, b))
		return id
	}
	k := g.clocks[0]
	var want []block.ID
	for i := range 6 { // in turns
		want = append(want, add([]*Pending{from, to}[i%2], k))
		k.Mark()
	}
	set := add(from, k, g.clocks[1])
	add(to, g.clocks[1], k) // has a set of the same number
	var live []*block.Block
	for _, clocks := range [][]*Clock{{g.clocks[1]}, g.clocks} {
		_, b := g.block(little)
		for _, k := range clocks {
			from.Record(b, k)
		}
		live = append(live, b)
	}
	_, plain := g.block(little)

	bytes := from.Bytes() + to.Bytes()
	all := []*block.Block{plain}
	from.Each(func(_ *Clock, _ uint64, id block.ID) {
		if b := g.table.At(id); !slices.Contains(all, b) {
			all = append(all, b)
		}
	})
	for _, b := range append(all, live...) {
		from.MoveBlock(b, to)
	}
	from.MoveWaits(to)
	require.Zero(t, from.Bytes())
	require.Equal(t, bytes, to.Bytes())
	require.Equal(t, []int{0, 0}, from.names(2))
	require.Equal(t, []int{6 + 3, 4}, to.names(2))
	require.Zero(t, plain.Uses())
	require.EqualValues(t, 2, live[0].Uses())
	require.Equal(t, g.clocks, to.set(live[1]).clocks)

	var ids []block.ID
	for range 6 {
		k.Over(k.Done() + 1)
		ids = append(ids, collect(to)...)
	}
	require.Equal(t, want, ids, "one at every epoch")
	k.Over(k.Mark())
	require.Empty(t, collect(to))
	g.clocks[1].Over(g.clocks[1].Mark())
	require.Len(t, collect(to), 2)
	require.NotContains(t, want, set)
	for _, b := range live {
		to.Forget(b)
	}
	require.Equal(t, []int{0, 0}, to.names(2))
	from.Drop()
	require.Zero(t, from.Bytes())
}

// TestPendingRandom compares with a list of blocks and of the epochs that each
// waits for, over two heaps and streams that go on, while blocks are recorded,
// freed, moved and collected.
func TestPendingRandom(t *testing.T) {
	const streams = 5
	for range testkit.Rounds(80) {
		r := testkit.Rand(t)
		g := newRig(streams)
		heaps := []*Pending{g.pending(), g.pending()}
		most := map[*Pending]int{} // sets in use at once
		type entry struct {
			b     *block.Block
			p     *Pending
			uses  map[*Clock]bool
			waits map[*Clock]uint64 // nil: live
		}
		blocks := map[block.ID]*entry{}
		done := func(id block.ID, b *block.Block) {
			x := blocks[id]
			require.NotNil(t, x)
			for k, epoch := range x.waits {
				require.LessOrEqual(t, epoch, k.Done(), "block %d came too early", id)
			}
			require.Zero(t, b.Uses())
			delete(blocks, id)
			g.slots.Put(id, b)
		}
		pick := func(live bool) (block.ID, *entry) {
			for _, id := range sorted(blocks) {
				if x := blocks[id]; (x.waits == nil) == live && r.IntN(3) == 0 {
					return id, x
				}
			}
			return 0, nil
		}
		for range 1500 {
			k := g.clocks[r.IntN(streams)]
			switch r.IntN(8) {
			case 0, 1:
				id, b := g.block(little << r.IntN(14))
				blocks[id] = &entry{b: b, p: heaps[r.IntN(2)], uses: map[*Clock]bool{}}
			case 2, 3:
				if _, x := pick(true); x != nil {
					x.p.Record(x.b, k)
					x.uses[k] = true
				}
			case 4, 5:
				id, x := pick(true)
				if x == nil || len(x.uses) == 0 {
					break
				}
				x.waits = map[*Clock]uint64{}
				for k := range x.uses {
					x.waits[k] = k.tick.Load()
				}
				x.b.SetWord(block.MakeWord(1, block.Pending))
				require.True(t, x.p.Add(id, x.b))
			case 6:
				k.Over(k.Mark())
				for _, p := range heaps {
					before := len(blocks)
					require.Equal(t, p.Collect(done), before-len(blocks))
					for _, l := range p.lists {
						require.LessOrEqual(t, l.head, len(l.fifo)/2, "the front of a list goes")
					}
				}
				for id, x := range blocks { // none is late
					late := x.waits != nil
					for k, epoch := range x.waits {
						late = late && epoch <= k.Done()
					}
					require.False(t, late, "block %d is done", id)
				}
			case 7:
				if r.IntN(10) != 0 {
					break
				}
				from, to := heaps[0], heaps[1]
				for _, x := range blocks {
					if x.p == from {
						from.MoveBlock(x.b, to)
						x.p = to
					}
				}
				from.MoveWaits(to)
				heaps[0], heaps[1] = to, from
			}
			for _, p := range heaps {
				var bytes int64
				names, sets := make([]int, streams), len(p.free)
				for id, x := range blocks {
					if x.p != p {
						continue
					}
					if p.set(x.b) != nil {
						sets++
					}
					if x.waits != nil {
						bytes += x.b.Size
						left := map[*Clock]uint64{}
						for k, epoch := range x.waits {
							if epoch > k.Done() {
								left[k] = epoch
							}
						}
						for _, at := range p.Of(id) {
							require.Equal(t, left[at.Clock], at.Epoch)
							delete(left, at.Clock)
						}
						require.Empty(t, left)
					}
					for k := range x.uses {
						names[k.slot]++
					}
				}
				require.Equal(t, bytes, p.Bytes())
				require.Equal(t, names, p.names(streams))
				require.Len(t, p.sets, sets, "a set is a block's or free")
				most[p] = max(most[p], sets-len(p.free))
				require.Len(t, p.sets, most[p], "a set that is free is used again")
			}
		}
	}
}

func sorted[T any](m map[block.ID]T) []block.ID {
	var ids []block.ID
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// TestHold: a block that is held waits for whoever holds it and for its streams, in any
// order, also when its heap's waits move.
func TestHold(t *testing.T) {
	for _, order := range []string{"shs", "hhs", "sh", "h", "hs"} { // streams and holds end
		g := newRig(3)
		p, to := g.pending(), g.pending()
		id, b := g.block(1000)
		var waits []func(p *Pending)
		freed := 0
		done := func(_ block.ID, b *block.Block) {
			freed++
			require.Zero(t, b.Uses(), "it may be used again")
		}
		for i, what := range order {
			if what == 's' {
				k := g.clocks[i]
				p.Record(b, k)
				waits = append(waits, func(p *Pending) { k.Over(k.Newest()); p.Collect(done) })
			} else {
				p.Hold(b)
				waits = append(waits, func(p *Pending) { p.Unhold(id, b, done) })
			}
		}
		b.SetWord(block.MakeWord(1, block.Pending))
		require.True(t, p.Add(id, b))
		p.MoveBlock(b, to)
		p.MoveWaits(to)
		for i, end := range waits {
			require.Zero(t, freed, order)
			require.EqualValues(t, 1000, to.Bytes())
			end(to)
			require.Equal(t, i == len(waits)-1, freed == 1, order)
		}
		require.Zero(t, to.Bytes())
		require.Zero(t, b.Uses())
	}
}

// TestHoldLive: a hold that ends before the free leaves what was recorded.
func TestHoldLive(t *testing.T) {
	g := newRig(1)
	p := g.pending()
	id, b := g.block(1000)
	p.Hold(b)
	p.Unhold(id, b, nil)
	require.Zero(t, b.Uses())
	p.Record(b, g.clocks[0])
	p.Hold(b)
	p.Unhold(id, b, nil)
	require.True(t, p.Names(0))
	b.SetWord(block.MakeWord(1, block.Pending))
	require.True(t, p.Add(id, b))
}
