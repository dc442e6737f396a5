package magazine

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// A spread says which shard is whose, once goroutines have met in one: one took a block
// that another one was about to take. The idea is that of Doug Lea's Striped64 (java.util):
// whoever lost moves to the next shard. Where nobody loses, nobody moves, so a program of
// one goroutine has one shard, and one of sixteen soon has sixteen.
//
// Goroutines are told apart by the part of a stack that they run on. That is a hint: a
// goroutine that calls from far deeper in its stack, or whose stack was moved, counts as
// another one, and goroutines whose stacks have the same hash move together. So who loses
// again and again moves ever more rarely.
type spread struct {
	moves  [hashes]atomic.Uint32 // how often who has the hash lost, above the number of its shard
	shards []atomic.Pointer[shard]
	next   uint32 // the shard for who loses next; guarded by the heap's lock
}

const (
	hashBits  = 9
	hashes    = 1 << hashBits
	stackBits = 11 // no stack is smaller than 2 KiB

	perProcessor = 2 // shards
	mostShards   = 1 << shardBits
	shardBits    = 10
)

// shut is the spread of a cache that is shut.
var shut = new(spread)

// Shut ends the hits for good.
func (c *Cache) Shut() { c.spread.Store(shut) }

// whose returns the hash of the goroutine on whose stack something is.
func whose(here *byte) uint {
	return uint(uint64(uintptr(unsafe.Pointer(here))>>stackBits)*0x9E3779B97F4A7C15>>(64-hashBits)) % hashes
}

// at returns the shard of who has a hash, or nil.
func (sp *spread) at(who uint) *shard {
	n := sp.moves[who%hashes].Load() % mostShards
	if n < uint32(len(sp.shards)) {
		return sp.shards[n].Load()
	}
	return nil
}

// move gives a goroutine that has lost a block to another one the next shard, or leaves
// it where it is.
func (c *Cache) move(who uint) {
	sp := c.spread.Load()
	if sp == nil {
		n := min(runtime.GOMAXPROCS(0)*perProcessor, mostShards)
		sp = &spread{shards: make([]atomic.Pointer[shard], n)}
		sp.shards[0].Store(c.first.Load())
		if !c.spread.CompareAndSwap(nil, sp) {
			return // it was shut
		}
	}
	if sp == shut {
		return
	}
	at := &sp.moves[who%hashes]
	lost, n := at.Load()>>shardBits+1, at.Load()%mostShards
	if bits.OnesCount32(lost) == 1 {
		sp.next = (sp.next + 1) % uint32(len(sp.shards))
		n = sp.next
	}
	at.Store(lost<<shardBits | n)
}

// begin makes the shard of a goroutine that missed, unless the cache is shut.
func (c *Cache) begin(why Miss) *shard {
	sh := &shard{number: Misses(len(c.shards) << flagBits)}
	switch sp := c.spread.Load(); sp {
	case shut:
		return nil
	case nil:
		c.first.Store(sh)
	default:
		sp.shards[sp.moves[why>>flagBits%hashes].Load()%mostShards].Store(sh)
	}
	c.shards = append(c.shards, sh)
	return sh
}

func (sp *spread) bytes() int64 {
	if sp == nil {
		return 0
	}
	return int64(unsafe.Sizeof(*sp)) + int64(len(sp.shards))*8
}
