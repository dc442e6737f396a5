// Package magazine keeps freed blocks where the next request of the same
// size finds them without a lock.
//
// A cache has one shard a processor, a shard 64 sets by size, a set eight
// slots in one cache line. A slot is the home of a block: it refers to the
// block whether the block is out or back, and the block's own word, changed
// by compare-and-swap, says which. So taking a homed block and giving it
// back is one atomic each, from any goroutine, and everything else about
// slots is a hint: a stale slot leads to a word that does not match.
//
// A size is given a home when it keeps missing (Wants), so that one-off sizes
// go back to the pool, where they coalesce.
package magazine

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/cupool/cupool/internal/block"
)

const (
	setCount = 64
	ways     = 8
)

// set is one cache line. A slot holds a block's ID above a tag of the size.
type set [ways]atomic.Uint64

// shard is the sets with what a miss looks at in a few lines of its own. tags
// has a bit for every tag in a set's slots and perhaps for some that were
// (Bloom 1970), so that most misses look at no slot; recent is half the tag
// of a set's last miss, victim picks the slot that is given up.
type shard struct {
	sets   [setCount]set // first, so that each is one line
	tags   [setCount]atomic.Uint32
	recent [setCount]uint16 // guarded by the stream's lock, as what follows
	victim [setCount]uint8
	last   int64 // size of the last miss of all
	streak int   // misses of that size in a row
}

// bit returns the bit of a tag in shard.tags.
func bit(tag uint32) uint32 { return 1 << (tag & 31) }

// Cache is the magazines of one stream. Get and the words of homed blocks
// are for any goroutine without a lock; the other methods are guarded by
// the stream's lock.
type Cache struct {
	Table  *block.Table
	owner  uint32 // index of the stream
	shards []atomic.Pointer[shard]
	mask   int
}

// New returns an empty cache for the blocks of one stream, with a shard for
// every processor.
func New(t *block.Table, owner uint32) *Cache {
	n := 1 << bits.Len(uint(runtime.GOMAXPROCS(0)-1))
	return &Cache{Table: t, owner: owner, shards: make([]atomic.Pointer[shard], n), mask: n - 1}
}

// hash spreads a size in bytes: the set from the high bits, the tag from
// the low ones.
func hash(size int64) (set uint, tag uint32) {
	h := uint64(size) * 0x9E3779B97F4A7C15
	return uint(h >> 58), uint32(h >> 26)
}

// Proc returns the processor that the goroutine runs on, which chooses the
// shard: a hint that any other number may replace.
func Proc() int { return procID() }

// Get takes a cached block that was last handed out for size bytes, and
// returns its new generation. Where a stale slot led astray, the block's
// Requested differs from size and the caller frees it again.
func (c *Cache) Get(proc int, size int64) (block.ID, *block.Block, uint64) {
	sh := c.shards[proc&c.mask].Load()
	if sh == nil {
		return 0, nil, 0
	}
	i, tag := hash(size)
	if sh.tags[i%setCount].Load()&bit(tag) == 0 {
		return 0, nil, 0
	}
	s := &sh.sets[i%setCount]
	for w := range s {
		slot := s[w].Load()
		if uint32(slot) != tag || slot == 0 {
			continue
		}
		b := c.Table.At(block.ID(slot >> 32))
		old := b.Word()
		// A stale slot may lead to a block that another stream caches now.
		// The owner stays as long as the word does.
		if old != block.MakeWord(old.Gen(), block.Cached|block.Homed) || b.Owner() != c.owner {
			continue
		}
		gen := old.Gen() + 1
		if b.Swap(old, block.MakeWord(gen, block.Live|block.Homed)) {
			return block.ID(slot >> 32), b, gen
		}
	}
	return 0, nil, 0
}

// Wants notes a miss of size and reports whether its block deserves a home:
// when the last miss in the same set was of the same size or, for a large
// block, when the last sixteen misses of all were. A large block that is kept
// from its neighbours spoils the placement of others, so it is kept only for
// a program that does nothing else.
func (c *Cache) Wants(proc int, size int64, large bool) bool {
	p := &c.shards[proc&c.mask]
	sh := p.Load()
	if sh == nil {
		sh = new(shard)
		p.Store(sh)
	}
	i, tag := hash(size)
	again := sh.recent[i%setCount] == uint16(tag>>16)
	sh.recent[i%setCount] = uint16(tag >> 16)
	if sh.last != size {
		sh.last, sh.streak = size, 0
	}
	sh.streak++
	if large {
		return sh.streak > largeStreak
	}
	return again
}

// largeStreak is how many misses in a row a large size needs. Replays of
// real programs reserve 0.4 % less with 8 or more than with 1 to 3.
const largeStreak = 16

// Home makes a slot refer to the block. It returns a block that lost its
// slot to this one, or 0; the caller decides what becomes of it. The slot may
// have been stale, and the block another stream's by now.
func (c *Cache) Home(proc int, id block.ID, size int64) (evicted block.ID) {
	sh := c.shards[proc&c.mask].Load()
	if sh == nil {
		return id
	}
	i, tag := hash(size)
	s := &sh.sets[i%setCount]
	way := s.vacant(c.Table)
	if way < 0 {
		sh.victim[i%setCount] = (sh.victim[i%setCount] + 1) % ways
		way = int(sh.victim[i%setCount])
		evicted = block.ID(s[way].Load() >> 32)
	}
	s[way].Store(uint64(id)<<32 | uint64(tag))
	tags := uint32(0)
	for w := range s {
		tags |= bit(uint32(s[w].Load()))
	}
	sh.tags[i%setCount].Store(tags)
	return evicted
}

// vacant returns a slot that is empty or whose block has left it, or -1.
func (s *set) vacant(t *block.Table) int {
	for w := range s {
		if v := s[w].Load(); v == 0 || !t.At(block.ID(v>>32)).Word().Has(block.Homed) {
			return w
		}
	}
	return -1
}

// Each calls fn for the block of every slot; with clear, slots for which fn
// returns true are emptied. A block may be seen twice.
func (c *Cache) Each(fn func(block.ID) (drop bool)) {
	for i := range c.shards {
		sh := c.shards[i].Load()
		if sh == nil {
			continue
		}
		for j := range sh.sets {
			for w := range sh.sets[j] {
				p := &sh.sets[j][w]
				if v := p.Load(); v != 0 && fn(block.ID(v>>32)) {
					p.Store(0)
				}
			}
		}
	}
}

// Drop forgets all slots, without a lock, so that Get finds nothing more. The
// blocks keep their homes in name until the stream takes them.
func (c *Cache) Drop() {
	for i := range c.shards {
		c.shards[i].Store(nil)
	}
}

// Bytes returns the memory that the shards take.
func (c *Cache) Bytes() (n int64) {
	for i := range c.shards {
		if c.shards[i].Load() != nil {
			n += int64(unsafe.Sizeof(shard{}))
		}
	}
	return n
}
