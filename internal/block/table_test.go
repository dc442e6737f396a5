package block

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTableHandsOutSlotsOnce(t *testing.T) {
	var tab Table
	require.False(t, tab.Known(0))
	require.False(t, tab.Known(1))
	slots := SlotCache{Table: &tab}
	seen := map[ID]*Block{}
	for i := range 3 * chunkLen {
		if i%(3*slotBatch) == 0 {
			require.NoError(t, slots.Ensure(3*slotBatch)) // so many are there then
		}
		id, b := slots.Take()
		require.NotZero(t, id, "slot 0 means no block")
		require.Nil(t, seen[id])
		seen[id] = b
	}
	for id, b := range seen {
		require.True(t, tab.Known(id))
		require.Same(t, b, tab.At(id), "chunks never move")
	}
	require.False(t, tab.Known(100*chunkLen))
	require.False(t, tab.Known(1<<32-1))
	require.EqualValues(t, 4*chunkLen*blockBytes, tab.Bytes())
}

// A large table grows by slabs of chunks.
func TestTableSlabs(t *testing.T) {
	tab := Table{next: slabLen*chunkLen - 1}
	slots := SlotCache{Table: &tab}
	seen := map[*Block]ID{}
	for range 2*slabLen*chunkLen + 3 {
		if err := slots.Ensure(1); err != nil {
			require.NoError(t, err)
		}
		id, b := slots.Take()
		seen[b] = id
	}
	require.Len(t, seen, 2*slabLen*chunkLen+3, "no block twice")
	for b, id := range seen {
		if tab.At(id) != b {
			require.Same(t, b, tab.At(id))
		}
	}
	require.EqualValues(t, 3*slabLen*chunkLen*blockBytes+hugePage, tab.Bytes())
}

// Slots that nobody has are nobody's: who has the lock of the heap that had them leaves
// them alone.
func TestSlotsOfNobody(t *testing.T) {
	var tab Table
	slots := SlotCache{Table: &tab}
	require.NoError(t, slots.Ensure(1))
	id, b := slots.Take()
	b.SetOwner(5)
	slots.Put(id, b)
	require.EqualValues(t, 5, b.Owner())
	slots.Drain()
	require.EqualValues(t, nobody, b.Owner())
}

func TestSlotCacheRecycles(t *testing.T) {
	var tab Table
	slots := SlotCache{Table: &tab}
	require.NoError(t, slots.Ensure(2))
	id, b := slots.Take()
	b.SetWord(MakeWord(5, Free))
	slots.Put(id, b)
	again, b2 := slots.Take()
	require.Equal(t, id, again, "the last one back goes out first")
	require.EqualValues(t, 5, b2.Word().Gen(), "the generation stays, so that old handles stay stale")
}

// A stream that frees what another allocated must not hoard the slots.
func TestSlotCacheGivesBack(t *testing.T) {
	var tab Table
	a, b := SlotCache{Table: &tab}, SlotCache{Table: &tab}
	var ids []ID
	for range mostSlots {
		require.NoError(t, a.Ensure(1))
		id, _ := a.Take()
		ids = append(ids, id)
	}
	for _, id := range ids {
		b.Put(id, tab.At(id))
	}
	require.Len(t, b.ids, mostSlots/2)
	require.Len(t, tab.free, mostSlots/2)
	next := tab.next
	require.NoError(t, a.Ensure(1))
	require.Equal(t, next, tab.next, "recycled slots come first")

	b.Drain()
	a.Drain()
	require.Empty(t, b.ids)
	all := slices.Clone(tab.free)
	slices.Sort(all)
	require.Equal(t, len(all), len(slices.Compact(all)), "no slot is there twice")
	require.Len(t, all, int(tab.next)-1, "no slot is lost")
}

func TestTableFull(t *testing.T) {
	var tab Table
	tab.next = maxChunks*chunkLen - 1
	slots := SlotCache{Table: &tab}
	require.NoError(t, slots.Ensure(1), "the last slot")
	require.ErrorIs(t, slots.Ensure(2), ErrTableFull)
	id, _ := slots.Take()
	require.EqualValues(t, maxChunks*chunkLen-1, id)
	require.ErrorIs(t, slots.Ensure(1), ErrTableFull)
	slots.Put(id, tab.At(id))
	require.NoError(t, slots.Ensure(1), "a slot that came back serves")
}

func TestTableParallel(t *testing.T) {
	var tab Table
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			slots := SlotCache{Table: &tab}
			var mine []ID
			for i := range 5_000 {
				if slots.Ensure(1) != nil {
					t.Error("table full")
					return
				}
				id, b := slots.Take()
				b.Size = int64(id) // the race detector sees a slot held twice
				mine = append(mine, id)
				if i%3 == 0 {
					slots.Put(mine[0], tab.At(mine[0]))
					mine = mine[1:]
				}
			}
			for _, id := range mine {
				if tab.At(id).Size != int64(id) {
					t.Errorf("slot %d is somebody else's too", id)
				}
			}
		})
	}
	wg.Wait()
}
