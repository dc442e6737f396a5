// Package magazine keeps freed blocks where the next request of the same
// size finds them without a lock.
//
// A cache has a shard, a shard 64 sets by size, a set eight slots in one cache line. A
// slot is the home of a block: it refers to the block whether the block is out or back,
// and the block's own word says which. So a homed block is taken and given back by one
// compare-and-swap each, from any goroutine (block.TakeHomed, block.FreeHomed), and the
// slots stay as they are. Slots are written with the lock of the cache's heap; to who
// reads one without it, it is a hint. The slots of a set that are in use are the first.
//
// Where goroutines get in each other's way, they get shards of their own (spread.go).
//
// A size is given a home when it keeps missing (Misses), so that one-off sizes
// go back to the pool, where they coalesce.
package magazine

import (
	"sync/atomic"
	"unsafe"

	"github.com/cupool/cupool/internal/block"
)

const (
	setCount = 64
	ways     = 8
)

// set is one cache line. A slot holds a block's ID above a tag of the size, or 0.
type set [ways]atomic.Uint64

// shard is the sets, and what the heap's lock guards: recent is half the tag of a set's
// last miss, victim picks the slot that is given up. It has no pointers, so that it
// begins at a cache line.
type shard struct {
	sets   [setCount]set
	recent [setCount]uint16
	victim [setCount]uint8
	last   int64  // size of the last miss of all
	streak int    // misses of that size in a row
	number Misses // of the shard, as Missed returns it
}

// Cache is the magazines of one stream, empty after Init. Get and Shut are for any goroutine; the other
// methods are guarded by the heap's lock.
type Cache struct {
	first  atomic.Pointer[shard]  // of all goroutines; nil: no miss yet
	spread atomic.Pointer[spread] // where it is not nil, goroutines find their shards there
	table  *block.Table
	owner  uint32   // index of the heap
	shards []*shard // all, as homes name them
}

// Init makes the cache one for the blocks of a heap.
func (c *Cache) Init(t *block.Table, owner uint32) { c.table, c.owner = t, owner }

// hash spreads a size in bytes: the set from the high bits, the tag from
// the low ones. No tag is 0.
func hash(size int64) (set uint, tag uint32) {
	h := uint64(size) * 0x9E3779B97F4A7C15
	return uint(h>>58) % setCount, uint32(h>>26) | 1
}

// Miss says why Get found nothing, and who asked, above that.
type Miss uint32

const (
	ends Miss = 1 << iota // GetEnded finds what Get did not, most likely
	lost                  // another goroutine took the block

	flagBits = 2
)

// Ends reports whether GetEnded most likely finds what Get did not.
func (m Miss) Ends() bool { return m&ends != 0 }

// Get takes a cached block that was last handed out for size bytes, and returns its
// address and its new generation. It returns 0 and why where there is none.
func (c *Cache) Get(size int64) (id block.ID, addr, gen uint64, why Miss) {
	var here byte
	sh := c.first.Load()
	if sp := c.spread.Load(); sp != nil {
		who := whose(&here)
		sh, why = sp.at(who), Miss(who<<flagBits)
	}
	if sh == nil {
		return 0, 0, 0, why
	}
	i, tag := hash(size)
	s := &sh.sets[i]
	for n := range s {
		slot := s[n].Load()
		if slot == 0 {
			break
		}
		if uint32(slot) != tag {
			continue
		}
		id = block.ID(slot >> 32)
		b := c.table.At(id)
		w, ok := b.Cached(c.owner, size)
		if !ok {
			continue
		}
		if b.Ends(w) {
			why |= ends
		} else if addr, ok = b.TakeHomed(w); ok {
			return id, addr, w.Gen() + 1, 0
		} else if b.IsHomed() {
			return 0, 0, 0, lost | Miss(whose(&here)<<flagBits)
		}
	}
	return 0, 0, 0, why
}

// at returns the shard of a goroutine that missed, or nil.
func (c *Cache) at(why Miss) *shard {
	if sp := c.spread.Load(); sp != nil {
		return sp.at(uint(why >> flagBits))
	}
	return c.first.Load()
}

// GetEnded takes a cached block that Get would have found but for its stay, which
// ends. The block has its home yet; the caller takes it out. It returns the note of
// the stay.
func (c *Cache) GetEnded(size int64, why Miss) (block.ID, *block.Block, uint8) {
	sh := c.at(why)
	if sh == nil {
		return 0, nil, 0
	}
	i, tag := hash(size)
	for w := range sh.sets[i] {
		slot := sh.sets[i][w].Load()
		if uint32(slot) != tag {
			continue
		}
		id := block.ID(slot >> 32)
		if b := c.table.At(id); b.TakeLast(size) {
			return id, b, b.StayNote()
		}
	}
	return 0, nil, 0
}

// Misses says how often a size missed in a shard, and the number of that, above it.
type Misses uint32

const (
	again     Misses = 1 << iota // the last miss in the same set was of this size
	manyTimes                    // the last largeStreak misses of all were
)

// largeStreak is how many misses in a row a large size needs. Replays of
// real programs reserve 0.4 % less with 8 or more than with 1 to 3.
const largeStreak = 16

// Missed notes that Get found nothing for size bytes. The first time makes the shard.
func (c *Cache) Missed(size int64, why Miss) (m Misses) {
	if why&lost != 0 {
		c.move(uint(why >> flagBits))
	}
	sh := c.at(why)
	if sh == nil {
		if sh = c.begin(why); sh == nil {
			return 0
		}
	}
	i, tag := hash(size)
	if sh.recent[i] == uint16(tag>>16) {
		m = again
	}
	sh.recent[i] = uint16(tag >> 16)
	if sh.last != size {
		sh.last, sh.streak = size, 0
	}
	if sh.streak++; sh.streak > largeStreak {
		m |= manyTimes
	}
	return m | sh.number
}

// Recurs reports whether a block deserves a home after so many misses of its size.
// A large block that is kept from its neighbours spoils the placement of
// others, so it is kept only for a program that does nothing else.
func (m Misses) Recurs(large bool) bool {
	if large {
		return m&manyTimes != 0
	}
	return m&again != 0
}

// Each calls f for all slots that refer to a block, of a set from the last, so that f may
// vacate each.
func (c *Cache) Each(f func(id block.ID, b *block.Block)) {
	for _, sh := range c.shards {
		for i := range sh.sets {
			for w := ways - 1; w >= 0; w-- {
				if id := block.ID(sh.sets[i][w].Load() >> 32); id != 0 {
					f(id, c.table.At(id))
				}
			}
		}
	}
}

// Has reports whether a block that was last handed out for size bytes is cached in a
// slot of any shard.
func (c *Cache) Has(size int64) bool {
	i, tag := hash(size)
	for _, sh := range c.shards {
		for w := range sh.sets[i] {
			slot := sh.sets[i][w].Load()
			if uint32(slot) != tag {
				continue
			}
			if b := c.table.At(block.ID(slot >> 32)); b.Requested() == size && b.Word().State() == block.Cached {
				return true
			}
		}
	}
	return false
}

// A Leaver is a block that left its home: the word that it has now, and how
// often it went out since that was booked.
type Leaver struct {
	ID   block.ID
	Word block.Word
	Hits int64
}

// Shard returns the number of the shard where the misses were.
func (m Misses) Shard() uint32 { return uint32(m >> flagBits) }

// ShardOf returns the number of the shard where a block had its last home.
func ShardOf(b *block.Block) uint32 { return b.Slot() / (setCount * ways) }

// Home makes a slot of a shard the home of a live block for a while, as Live or Cached,
// and reports whether it did. There may be a block that lost its slot to this one. One of
// the same size mostly keeps its slot: where more blocks of a size are out at once than
// have slots, another one there would be of no more use.
func (c *Cache) Home(n uint32, id block.ID, b *block.Block, as block.State, stay block.Stay) (evicted Leaver, ok bool) {
	if n >= uint32(len(c.shards)) || c.spread.Load() == shut {
		return Leaver{}, false
	}
	i, tag := hash(b.Requested())
	s := &c.shards[n].sets[i]
	way := s.vacant()
	if way < 0 {
		victim := &c.shards[n].victim[i]
		*victim++
		way = int(*victim % ways)
		if round := int(*victim / ways % ways); uint32(s[way].Load()) == tag && way != round {
			return Leaver{}, false
		}
		evicted, _, _ = c.leave(block.ID(s[way].Load()>>32), block.Live, block.Cached)
	}
	b.SetHome(as, (n*setCount+uint32(i))*ways+uint32(way), stay)
	s[way].Store(uint64(id)<<32 | uint64(tag))
	return evicted, true
}

// vacant returns a slot that is empty, or -1.
func (s *set) vacant() int {
	if s[ways-1].Load() != 0 {
		return -1
	}
	for w := range s {
		if s[w].Load() == 0 {
			return w
		}
	}
	return -1
}

// leave takes a block out of its home, where it is in one of some states. The slot still
// names it.
func (c *Cache) leave(id block.ID, states ...block.State) (l Leaver, slot uint32, ok bool) {
	slot, w, hits, ok := c.table.At(id).LeaveHome(states...)
	return Leaver{id, w, hits}, slot, ok
}

// vacate is leave that empties the slot: the last of the set in use takes its place.
func (c *Cache) vacate(id block.ID, states ...block.State) (Leaver, bool) {
	l, slot, ok := c.leave(id, states...)
	if !ok {
		return l, false
	}
	s := &c.shards[slot/(setCount*ways)].sets[slot/ways%setCount]
	way, last := slot%ways, uint32(ways-1)
	for s[last].Load() == 0 {
		last--
	}
	if last != way {
		moved := s[last].Load()
		s[way].Store(moved)
		c.table.At(block.ID(moved >> 32)).SetSlot(slot)
	}
	s[last].Store(0)
	return l, true
}

// Leave takes a live block of this heap out of its home, if it has one, and
// reports whether it did.
func (c *Cache) Leave(id block.ID) (Leaver, bool) { return c.vacate(id, block.Live) }

// Flush takes all blocks that are Cached out of their homes, and those that are
// live too, if so asked. It calls f for each.
func (c *Cache) Flush(live bool, f func(Leaver)) {
	states := []block.State{block.Cached, block.Live}
	if !live {
		states = states[:1]
	}
	c.Each(func(id block.ID, _ *block.Block) {
		if l, ok := c.vacate(id, states...); ok {
			f(l)
		}
	})
}

// Drop gives the shards' memory up. All blocks have left.
func (c *Cache) Drop() {
	c.first.Store(nil)
	if sp := c.spread.Load(); sp != shut {
		c.spread.CompareAndSwap(sp, nil)
	}
	c.shards = nil
}

// Bytes returns the memory that the shards take.
func (c *Cache) Bytes() int64 {
	return int64(len(c.shards))*int64(unsafe.Sizeof(shard{})) + c.spread.Load().bytes()
}
