// Package magazine keeps freed blocks where the next request of the same
// size finds them without a lock and, most often, without an atomic
// read-modify-write.
//
// A cache has one shard a processor, a shard 64 sets by size, a set eight
// slots in one cache line. A slot is the home of a block: it refers to the
// block whether the block is out or back, and the block's own word says which.
// So giving a homed block back is one compare-and-swap, from any goroutine. Taking
// it is a plain store, as only the goroutine inside of the processor (Procs) takes
// blocks there. Everything else about slots is a hint: a stale slot leads to a block
// that has another home, or none.
//
// A size is given a home when it keeps missing (Misses), so that one-off sizes
// go back to the pool, where they coalesce.
package magazine

import (
	"unsafe"

	"github.com/cupool/cupool/internal/atomic"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/relaxed"
)

const (
	setCount = 64
	ways     = 8
)

// set is one cache line. A slot holds a block's ID above a tag of the size. It
// is written inside of the processor.
type set [ways]relaxed.Uint64

// shard is the sets with what a miss looks at in a few lines of its own. tags
// has a bit for every tag in a set's slots and perhaps for some that were
// (Bloom 1970), so that most misses look at no slot; recent is half the tag
// of a set's last miss, victim picks the slot that is given up. But for victim,
// all is written by the goroutine that is pinned to the processor, or by the
// goroutine that has closed it.
type shard struct {
	sets   [setCount]set // first, so that each is one line
	tags   [setCount]relaxed.Uint64
	recent [setCount]relaxed.Uint32
	last   relaxed.Int64 // size of the last miss of all
	streak relaxed.Int64 // misses of that size in a row
	proc   *proc
	victim [setCount]uint8 // guarded by the stream's lock
}

// bit returns the bit of a tag in shard.tags.
func bit(tag uint32) uint64 { return 1 << (tag & 63) }

// Cache is the magazines of one stream. Get is for any goroutine; the other
// methods are guarded by the stream's lock.
type Cache struct {
	table  *block.Table
	owner  uint32 // index of the stream
	procs  *Procs
	shards []atomic.Pointer[shard] // by processor
}

// New returns an empty cache for the blocks of one stream.
func New(t *block.Table, owner uint32, p *Procs) *Cache {
	return &Cache{table: t, owner: owner, procs: p, shards: make([]atomic.Pointer[shard], len(p.list))}
}

// hash spreads a size in bytes: the set from the high bits, the tag from
// the low ones.
func hash(size int64) (set uint, tag uint32) {
	h := uint64(size) * 0x9E3779B97F4A7C15
	return uint(h >> 58), uint32(h >> 26)
}

// Get takes a cached block that was last handed out for size bytes on this
// processor, and returns its new generation, or 0 and how often the size missed.
// Only the goroutine inside of the processor fills its slots, so a block found here
// has the requested size and belongs to this heap. Get looks at the tags before it
// goes inside, so most misses never do; a block that is homed meanwhile is found by
// the next Get.
func (c *Cache) Get(size int64) (block.ID, *block.Block, uint64, Misses) {
	proc := procPin()
	if uint(proc) >= uint(len(c.shards)) {
		procUnpin()
		return 0, nil, 0, 0
	}
	sh := c.shards[proc].Load()
	if sh == nil {
		procUnpin()
		return 0, nil, 0, first
	}
	var ended Misses
	i, tag := hash(size)
	i %= setCount
	if sh.tags[i].Load()&bit(tag) != 0 && sh.proc.come() {
		s := &sh.sets[i]
		for w := range s {
			slot := s[w].Load()
			if uint32(slot) != tag {
				continue
			}
			id := block.ID(slot >> 32)
			if b := c.table.At(id); b.Requested() == size && b.Owner() == c.owner {
				if gen := b.TakeHomed(proc); gen != 0 {
					sh.proc.leave()
					procUnpin()
					return id, b, gen, 0
				}
			}
		}
		ended = c.tidy(s, tag, proc)
	}
	sh.proc.leave() // it announced itself, or is not inside anyway
	misses := sh.miss(i, tag, size) | ended
	procUnpin()
	return 0, nil, 0, misses
}

// tidy empties the slots of a tag whose block has its home elsewhere by now, as to
// look at that would slow it down each time. It returns stayEnds where GetEnded has
// something to find.
func (c *Cache) tidy(s *set, tag uint32, proc int) (ended Misses) {
	for w := range s {
		slot := s[w].Load()
		if uint32(slot) != tag {
			continue
		}
		if id := block.ID(slot >> 32); !c.lives(id, proc) {
			s[w].SetOwned(0)
		} else if c.table.At(id).Ends() {
			ended = stayEnds
		}
	}
	return ended
}

// GetEnded takes a cached block that Get would have found but for its stay, which
// ends. The block has its home yet; the caller takes it out. It returns the note of
// the stay.
func (c *Cache) GetEnded(size int64) (block.ID, *block.Block, uint8) {
	i, tag := hash(size)
	proc := c.procs.enter()
	if proc < 0 {
		return 0, nil, 0
	}
	defer c.procs.exit(proc)
	sh := c.shards[proc].Load()
	if sh == nil {
		return 0, nil, 0
	}
	for w := range sh.sets[i%setCount] {
		slot := sh.sets[i%setCount][w].Load()
		id := block.ID(slot >> 32)
		if id == 0 || uint32(slot) != tag {
			continue
		}
		b := c.table.At(id)
		if note := b.StayNote(); b.Requested() == size && b.Owner() == c.owner && b.TakeLast(proc) != 0 {
			return id, b, note
		}
	}
	return 0, nil, 0
}

// Misses says how often a size missed on a processor.
type Misses uint8

const (
	again     Misses = 1 << iota // the last miss in the same set was of this size
	manyTimes                    // the last largeStreak misses of all were
	first                        // there is no shard yet
	stayEnds                     // GetEnded finds what Get did not, most likely
)

// largeStreak is how many misses in a row a large size needs. Replays of
// real programs reserve 0.4 % less with 8 or more than with 1 to 3.
const largeStreak = 16

// miss notes a miss on the processor that the goroutine is pinned to.
func (sh *shard) miss(set uint, tag uint32, size int64) (m Misses) {
	if sh.recent[set].Load() == tag>>16 {
		m = again
	}
	sh.recent[set].SetOwned(tag >> 16)
	if sh.last.Load() != size {
		sh.last.SetOwned(size)
		sh.streak.SetOwned(0)
	}
	if sh.streak.AddOwned(1); sh.streak.Load() > largeStreak {
		m |= manyTimes
	}
	return m
}

// Ended reports whether GetEnded most likely finds what Get did not.
func (m Misses) Ended() bool { return m&stayEnds != 0 }

// Recurs reports whether a block of size bytes deserves a home after what Get
// said. A large block that is kept from its neighbours spoils the placement of
// others, so it is kept only for a program that does nothing else. The first
// block that a stream hands out on a processor makes the shard.
func (c *Cache) Recurs(m Misses, size int64, large bool) bool {
	switch {
	case m == first:
		c.begin(size)
		return false
	case large:
		return m&manyTimes != 0
	}
	return m&again != 0
}

// begin makes the shard of this processor, which saw one miss.
func (c *Cache) begin(size int64) {
	proc := procPin()
	procUnpin() // a hint is enough
	if proc >= len(c.shards) {
		return
	}
	sh := &shard{proc: &c.procs.list[proc]}
	i, tag := hash(size)
	sh.miss(i%setCount, tag, size)
	c.shards[proc].CompareAndSwap(nil, sh)
}

// Has reports whether a block that was last handed out for size bytes lies in a
// slot of any processor.
func (c *Cache) Has(size int64) bool {
	i, tag := hash(size)
	for proc := range c.shards {
		sh := c.shards[proc].Load()
		if sh == nil {
			continue
		}
		for w := range sh.sets[i%setCount] {
			slot := sh.sets[i%setCount][w].Load()
			if id := block.ID(slot >> 32); uint32(slot) == tag && id != 0 && c.lives(id, proc) &&
				c.table.At(id).Requested() == size && c.table.At(id).Word().State() == block.Cached {
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

// Home makes a slot of this processor the home of a live block for a while, and reports
// whether it did. There may be a block that lost its slot to this one.
func (c *Cache) Home(id block.ID, b *block.Block, stay block.Stay) (evicted Leaver, ok bool) {
	proc := c.procs.enter()
	if proc < 0 {
		return Leaver{}, false
	}
	defer c.procs.exit(proc)
	return c.place(proc, id, b, stay)
}

// place is Home inside of a processor.
func (c *Cache) place(proc int, id block.ID, b *block.Block, stay block.Stay) (evicted Leaver, ok bool) {
	sh := c.shards[proc].Load()
	if sh == nil {
		return Leaver{}, false
	}
	i, tag := hash(b.Requested())
	i %= setCount
	s := &sh.sets[i]
	way := c.vacant(s, proc)
	if way < 0 {
		sh.victim[i] = (sh.victim[i] + 1) % ways
		way = int(sh.victim[i])
		evicted, _ = c.leave(block.ID(s[way].Load()>>32), true)
	}
	s[way].SetOwned(uint64(id)<<32 | uint64(tag))
	tags := uint64(0)
	for w := range s {
		tags |= bit(uint32(s[w].Load()))
	}
	sh.tags[i].SetOwned(tags)
	b.SetHome(proc, stay)
	return evicted, true
}

// vacant returns a slot that is empty or stale, or -1.
func (c *Cache) vacant(s *set, proc int) int {
	for w := range s {
		if id := block.ID(s[w].Load() >> 32); id == 0 || !c.lives(id, proc) {
			return w
		}
	}
	return -1
}

// lives reports whether a block of this stream has its home on a processor.
// With the stream's lock, or inside, a no stays.
func (c *Cache) lives(id block.ID, proc int) bool {
	b := c.table.At(id)
	return b.Word().Has(block.Homed) && b.Owner() == c.owner && b.Home() == proc
}

// leave takes a block out of its home.
func (c *Cache) leave(id block.ID, cached bool) (Leaver, bool) {
	w, hits, ok := c.table.At(id).LeaveHome(cached)
	return Leaver{id, w, hits}, ok
}

// Leave takes a live block of this stream out of its home, if it has one, and
// reports whether it did.
func (c *Cache) Leave(id block.ID) (Leaver, bool) { return c.leave(id, false) }

// Flush takes all blocks that are Cached out of their homes, and those that are
// live too, if so asked. It calls f for each, while all processors are closed.
func (c *Cache) Flush(live bool, f func(Leaver)) {
	c.procs.close()
	defer c.procs.open()
	for i := range c.shards {
		sh := c.shards[i].Load()
		if sh == nil {
			continue
		}
		for j := range sh.sets {
			for w := range sh.sets[j] {
				c.flushSlot(&sh.sets[j][w], i, live, f)
			}
		}
	}
}

func (c *Cache) flushSlot(slot *relaxed.Uint64, proc int, live bool, f func(Leaver)) {
	id := block.ID(slot.Load() >> 32)
	if id == 0 {
		return
	}
	switch lives := c.lives(id, proc); {
	case !lives:
		slot.SetOwned(0)
	case live || c.table.At(id).Word().State() == block.Cached:
		slot.SetOwned(0)
		if l, ok := c.leave(id, true); ok {
			f(l)
		}
	}
}

// CachedBytes returns the bytes of the blocks that are Cached in their homes.
func (c *Cache) CachedBytes() (n int64) {
	for proc := range c.shards {
		sh := c.shards[proc].Load()
		if sh == nil {
			continue
		}
		for i := range sh.sets {
			for w := range sh.sets[i] {
				id := block.ID(sh.sets[i][w].Load() >> 32)
				if id != 0 && c.lives(id, proc) && c.table.At(id).Word().State() == block.Cached {
					n += c.table.At(id).Size
				}
			}
		}
	}
	return n
}

// Drop gives the shards' memory up. All blocks have left.
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
