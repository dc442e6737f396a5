package heap

import (
	"time"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/magazine"
)

// noHomesAfterPending is how many blocks get no home in the magazines after one
// had to wait for another stream: a home is of no use to blocks that always do.
const noHomesAfterPending = 64

// NoHomes keeps the next blocks out of the magazines.
func (h *Heap) NoHomes() { h.noHomes = noHomesAfterPending }

// Missed notes that the magazines had nothing for size bytes, and returns how often.
func (h *Heap) Missed(size int64, why magazine.Miss) magazine.Misses {
	if h.space.Policy.HomeLimit == 0 {
		return 0
	}
	return h.Magazine.Missed(size, why)
}

// giveHome gives a live block a place in a shard of the magazines, as Live or Cached,
// where the bound allows it, and reports whether it did.
func (h *Heap) giveHome(shard uint32, id block.ID, b *block.Block, as block.State) bool {
	if h.homedBytes+b.Size > h.space.Policy.MagazineBytes {
		return false
	}
	stay, ok := h.space.stay(b.Requested())
	if !ok {
		return false
	}
	evicted, ok := h.Magazine.Home(shard, id, b, as, stay)
	if !ok {
		return false
	}
	h.homedBytes += b.Size
	if evicted.ID != 0 {
		h.left(evicted)
	}
	return true
}

// Unhome takes a block out of the magazines, if it is there, and reports whether
// the block is live.
func (h *Heap) Unhome(id block.ID, b *block.Block) bool {
	if b.Word().Has(block.Homed) {
		if l, ok := h.Magazine.Leave(id); ok {
			h.left(l)
		}
	}
	return b.Word().State() == block.Live
}

// stay returns how long a block stays in the magazines that is asked for with size
// bytes.
func (s *Space) stay(size int64) (block.Stay, bool) {
	if s.Stay == nil {
		return block.Long, true
	}
	return s.Stay(size)
}

// TakeEnded takes a block for size bytes out of the magazines whose Stay ends with
// this, live, or returns 0. It returns the Stay's note.
func (h *Heap) TakeEnded(size int64, why magazine.Miss) (block.ID, *block.Block, uint8) {
	id, b, note := h.Magazine.GetEnded(size, why)
	if id != 0 {
		h.Unhome(id, b)
	}
	return id, b, note
}

// Rehome puts a live block that the program gave back into the magazines again,
// and reports whether it did.
func (h *Heap) Rehome(id block.ID, b *block.Block) bool {
	if h.noHomes > 0 || b.Size > h.space.Policy.HomeLimit || b.Word() != block.MakeWord(b.Word().Gen(), block.Live) {
		return false
	}
	return h.giveHome(magazine.ShardOf(b), id, b, block.Cached)
}

// left counts what a block did in the magazines that it left. From then on it
// changes with the lock only: a live one stays live, a cached one is free.
func (h *Heap) left(l magazine.Leaver) {
	b := h.space.Blocks.At(l.ID)
	h.homedBytes -= b.Size
	if l.Hits > 0 {
		h.countHits(b, l.Hits)
	}
	if l.Word.State() == block.Cached {
		h.Put(l.ID, b)
	}
}

// countHits counts that a block went out and back n times.
func (h *Heap) countHits(b *block.Block, n int64) {
	k := h.Kind(b)
	h.Ledger.Hits(k, n, b.Size, b.Requested())
	if k == ledger.Large {
		h.lives.hits(b.Size, n)
	}
}

// Homes is what the magazines of heaps refer to, of which the ledgers know only that it
// is out.
type Homes struct {
	Hits, HitBytes, HitReq         int64 // of what went out and came back, and is not booked yet
	Cached, CachedBytes, CachedReq int64 // of blocks that are back
	LargestCached                  int64 // bytes of one of them
	HomedBytes                     int64 // of all blocks
}

// add counts a homed block, whose word is w.
func (n *Homes) add(b *block.Block, w block.Word) {
	hits := int64(w.Gen() - b.HomeGen())
	n.Hits += hits
	n.HitBytes += hits * b.Size
	n.HitReq += hits * b.Requested()
	n.HomedBytes += b.Size
	if w.State() == block.Cached {
		n.Cached++
		n.CachedBytes += b.Size
		n.CachedReq += b.Requested()
		n.LargestCached = max(n.LargestCached, b.Size)
	}
}

// AddHomes adds what the heap's magazines refer to, small and large apart. It takes time
// in proportion to the slots of the magazines.
func (h *Heap) AddHomes(sum *[2]Homes) {
	if h.homedBytes > 0 {
		h.Magazine.Each(func(_ block.ID, b *block.Block) { sum[h.Kind(b)].add(b, b.Word()) })
	}
}

// HomedBytes returns the bytes of the blocks that the magazines refer to.
func (h *Heap) HomedBytes() int64 { return h.homedBytes }

// Flush returns everything that is free in the magazines and the fast bins to
// the free sets and reports whether there was anything.
func (h *Heap) Flush() bool { return h.empty(false) }

// UnhomeAll is Flush that takes live blocks out of the magazines, too. A block
// that is freed meanwhile is put back before or after it lost its home.
func (h *Heap) UnhomeAll() { h.empty(true) }

func (h *Heap) empty(live bool) bool {
	found := false
	if h.homedBytes > 0 {
		h.Magazine.Flush(live, func(l magazine.Leaver) {
			h.left(l)
			found = true
		})
	}
	return h.MergeFast() || found
}

// Goroutines may be more than the blocks of a size are, where they were never all out at
// once. A goroutine that finds none would empty the magazines of the others, which then
// find none.
const (
	crowdFlushes = 16
	crowdTime    = 10 * time.Millisecond
)

// crowd is how often a heap's magazines were to be emptied for a block of a
// size that they hold.
type crowd struct {
	since   time.Time
	flushes int
}

// Crowded reports whether the heap should grow by a block of size bytes rather
// than take a block out of its magazines: more than crowdFlushes times in
// crowdTime one was wanted. What the heap grows by finds homes until every
// goroutine has what it needs, or the magazines are full.
func (h *Heap) Crowded(size int64) bool {
	if !h.Magazine.Has(size) {
		return false
	}
	if now := time.Now(); now.Sub(h.crowd.since) > crowdTime {
		h.crowd = crowd{since: now}
	}
	h.crowd.flushes++
	return h.crowd.flushes > crowdFlushes
}
