package plan

import (
	"cmp"
	"slices"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/sizeclass"
)

// online places every block when it is born, as an allocator that does not
// know the future does: best fit, the lowest among equals. It takes
// n log n steps whatever the blocks are, so there is a plan in any case. It
// returns the height, or false when a sum of sizes is too large for it.
func online(blocks []Interval, offsets []int64) (height int64, ok bool) {
	slots := &block.SlotCache{Table: new(block.Table)}
	free := block.FreeSet{Table: slots.Table}
	if slots.Ensure(1) != nil {
		return 0, false
	}
	seg := &block.Segment{Size: sizeclass.MaxRequest &^ (sizeclass.Quantum - 1)}
	free.Insert(seg.Begin(slots))

	deaths := make([]int32, len(blocks)) // in order
	for i := range deaths {
		deaths[i] = int32(i)
	}
	births := slices.Clone(deaths)
	slices.SortFunc(deaths, func(a, b int32) int { return cmp.Or(cmp.Compare(blocks[a].Death, blocks[b].Death), cmp.Compare(a, b)) })
	slices.SortFunc(births, func(a, b int32) int { return cmp.Or(cmp.Compare(blocks[a].Birth, blocks[b].Birth), cmp.Compare(a, b)) })
	at := make([]block.ID, len(blocks))
	for _, i := range births {
		for ; blocks[deaths[0]].Death <= blocks[i].Birth; deaths = deaths[1:] {
			id, b := at[deaths[0]], slots.Table.At(at[deaths[0]])
			id, b, _, _ = seg.Coalesce(id, b, &free, slots)
			free.Insert(id, b)
		}
		size := sizeclass.Round(blocks[i].Size)
		id := free.BestFit(size)
		if id == 0 || slots.Ensure(1) != nil {
			return 0, false
		}
		b := slots.Table.At(id)
		free.Remove(id, b)
		if b.Size > size {
			free.Insert(seg.Split(id, b, size, slots))
		}
		b.SetWord(block.MakeWord(0, block.Live))
		at[i], offsets[i] = id, int64(b.Addr())
		height = max(height, offsets[i]+blocks[i].Size)
	}
	return height, true
}

// stack places every block above the one before, for sizes that leave no
// room for anything else.
func stack(blocks []Interval, offsets []int64) (height int64) {
	for i, b := range blocks {
		offsets[i] = height
		height += b.Size
	}
	return height
}
