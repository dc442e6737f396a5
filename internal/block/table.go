package block

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/sizeclass"
)

const (
	chunkBits = 10
	chunkLen  = 1 << chunkBits
	maxChunks = 1 << 14 // 16 Mi blocks, 2 GiB of books

	blockBytes = int64(unsafe.Sizeof(Block{}))

	// A table of more than slabLen chunks, 16 MiB, gets so many at a time, in
	// huge pages where the system has them: with so many blocks, each that is
	// looked at would else cost a look through the tables of pages, too.
	slabLen  = 1 << 7
	hugePage = 2 << 20 // bytes
)

// ErrTableFull: the table has no slot left.
var ErrTableFull = errors.New("block table is full (16,777,216 blocks)")

// Table holds every Block of an allocator in chunks that never move and
// hold no pointers, so that the garbage collector does not look at them.
// At needs no lock; slots are handed out through SlotCaches.
type Table struct {
	chunks [maxChunks]atomic.Pointer[[chunkLen]Block]

	mu   lock.Mutex
	next ID // slots below were handed out at least once
	free []ID
}

// At returns the block named id, which must have come from this table.
func (t *Table) At(id ID) *Block {
	return &t.chunks[id>>chunkBits&(maxChunks-1)].Load()[id&(chunkLen-1)]
}

// Known reports whether id was ever handed out.
func (t *Table) Known(id ID) bool {
	return id != 0 && id>>chunkBits < maxChunks && t.chunks[id>>chunkBits].Load() != nil
}

// refill appends up to n unused slots to dst. Recycled slots come first.
func (t *Table) refill(dst []ID, n int) ([]ID, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ; n > 0; n-- {
		if k := len(t.free); k > 0 {
			dst = append(dst, t.free[k-1])
			t.free = t.free[:k-1]
			continue
		}
		if t.next == 0 {
			t.next = 1 // slot 0 means no block
		}
		chunk := t.next >> chunkBits
		if chunk >= maxChunks {
			break
		}
		if t.chunks[chunk].Load() == nil {
			t.grow(chunk)
		}
		dst = append(dst, t.next)
		t.next++
	}
	if len(dst) == 0 {
		return dst, ErrTableFull
	}
	return dst, nil
}

// grow makes a chunk, with those behind it where the table is large.
func (t *Table) grow(chunk ID) {
	if chunk < slabLen {
		t.chunks[chunk].Store(new([chunkLen]Block))
		return
	}
	slab := new([slabLen][chunkLen]Block)
	memory := unsafe.Slice((*byte)(unsafe.Pointer(slab)), unsafe.Sizeof(*slab))
	memory = memory[-uintptr(unsafe.Pointer(slab))%hugePage:] // from the first whole page on
	useHugePages(memory[:len(memory)/hugePage*hugePage])
	for i := range slab {
		t.chunks[int(chunk)&^(slabLen-1)+i].Store(&slab[i])
	}
}

// giveBack takes slots back. Nobody owns them, so that who has a lock leaves them alone.
func (t *Table) giveBack(ids []ID) {
	for _, id := range ids {
		t.At(id).SetOwner(nobody)
	}
	t.mu.Lock()
	t.free = append(t.free, ids...)
	t.mu.Unlock()
}

// Bytes returns the memory that the chunks take, of slabs the pages in use.
func (t *Table) Bytes() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := int64(t.next+chunkLen-1) >> chunkBits * chunkLen * blockBytes
	if n > slabLen*chunkLen*blockBytes {
		n = sizeclass.RoundTo(n, hugePage)
	}
	return n
}

// slotBatch is how many slots a SlotCache gets from a Table at once.
const slotBatch = 64

// mostSlots is how many unused slots are too many for a SlotCache, which gives half of them back. To give
// one back is an atomic store, which costs as much as all else that a segment's return does with its block.
const mostSlots = 4096

// SlotCache hands out slots of a Table to one stream without the table's
// lock. Guarded by the stream's lock.
type SlotCache struct {
	Table *Table
	ids   []ID
}

// Ensure makes sure that n slots can be taken without failing.
func (c *SlotCache) Ensure(n int) error {
	if len(c.ids) >= n {
		return nil
	}
	ids, err := c.Table.refill(c.ids, max(slotBatch, n-len(c.ids)))
	c.ids = ids
	if err == nil && len(ids) < n {
		return ErrTableFull
	}
	return err
}

// Take returns an unused slot that Ensure promised.
func (c *SlotCache) Take() (ID, *Block) {
	n := len(c.ids) - 1
	id := c.ids[n]
	c.ids = c.ids[:n]
	return id, c.Table.At(id)
}

// Put takes the slot of a Free block back: a size of 0 marks it unused. Its
// word stays, so that old handles stay stale.
func (c *SlotCache) Put(id ID, b *Block) {
	b.Size = 0
	c.ids = append(c.ids, id)
	if n := len(c.ids); n >= mostSlots {
		c.Table.giveBack(c.ids[n/2:])
		c.ids = c.ids[:n/2]
	}
}

// Drain gives every slot back to the table.
func (c *SlotCache) Drain() {
	c.Table.giveBack(c.ids)
	c.ids = nil
}
