package cupool

import "github.com/cupool/cupool/internal/block"

// Corruptions break the books of an allocator, by the rule that they break.
// Its default stream is [Free 2M][Live 3M][Free 15M], for C5 that of stitchedPool.
var Corruptions = map[string]map[string]func(*Caching){
	"B1": {"a gap": func(c *Caching) { c.first().Size -= 512 }},
	"B2": {"free neighbours": func(c *Caching) { c.second().SetWord(block.MakeWord(1, block.Free)) }},
	"B3": {"a set that lost a block": func(c *Caching) { c.def.pools[large].Remove(c.def.segs[0].First, c.first()) },
		"a live block in a free set": func(c *Caching) { c.first().SetWord(block.MakeWord(1, block.Live)) }},
	"B5": {"another owner": func(c *Caching) { c.second().SetOwner(7) }},
	"C1": {"live bytes": func(c *Caching) { c.def.ledger.pools[large][outBytes].add(512) },
		"pending blocks":    func(c *Caching) { c.def.ledger.pools[large][pendingBlocks].add(1) },
		"splits":            func(c *Caching) { c.def.ledger.pools[large][splits].take(1) },
		"a peak":            func(c *Caching) { c.books.peaks[all][requestedBytes] = 0 },
		"against the limit": func(c *Caching) { c.reserved.Add(1) }},
	"C2": {"a segment not indexed": func(c *Caching) { c.segments.remove(c.def.segs[0]) },
		"another owner": func(c *Caching) { c.segments.list[0].owner = new(Stream) },
		"another place": func(c *Caching) { c.def.segs = append([]*block.Segment{nil}, c.def.segs...) }},
	"C3": {"homed but free": func(c *Caching) { c.first().SetWord(block.MakeWord(1, block.Free|block.Homed)) },
		"pending on nothing":  func(c *Caching) { c.second().SetWord(block.MakeWord(1, block.Pending)) },
		"homed and in flight": func(c *Caching) { c.second().SetWord(block.MakeWord(1, block.Pending|block.Homed)) }},
	"C4": {"homed bytes": func(c *Caching) { c.def.homedBytes += 512 }},
	"C5": {"a chunk elsewhere": func(c *Caching) { c.def.homes[large][0].chunks[1].off++ },
		"a gap that is none": func(c *Caching) { c.def.homes[large][0].gaps += 512 },
		"a part too few":     func(c *Caching) { c.def.stitches[0].parts = c.def.stitches[0].parts[1:] },
		"a part of nothing":  func(c *Caching) { c.def.stitches[0].seg = nil },
		"a home of nobody":   func(c *Caching) { c.def.stitches[0].chunks[0].h = &home{seg: c.def.homes[large][0].seg} },
		"a part that is live": func(c *Caching) {
			c.blocks.At(c.def.stitches[0].parts[0].id).SetWord(block.MakeWord(1, block.Live))
		}},
}

// HomedBytes returns the bytes of the default stream's blocks that the
// magazines refer to.
func (c *Caching) HomedBytes() int64 { return c.def.homedBytes }

func (c *Caching) first() *block.Block  { return c.blocks.At(c.def.segs[0].First) }
func (c *Caching) second() *block.Block { return c.blocks.At(c.first().Next) }

// Places returns how many streams the allocator keeps, closed ones included.
func (c *Caching) Places() int { return len(*c.streams.Load()) }

// FlushOwn is the ladder's step for a request of the default stream.
func (c *Caching) FlushOwn(size int64) bool {
	found, err := c.flushOwn(request{size: size, s: c.def})
	return found && err == nil
}
