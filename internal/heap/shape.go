package heap

import (
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
)

// Shape counts segments as those who look at a pool see them: stretches of memory without
// gaps, each memory once.
type Shape struct {
	Segments  int64
	Free      int64 // free blocks of segments that have others, those in the magazines too
	FreeBytes int64
	Lent      int64 // reserved bytes that are seen in the other kind: in stitched blocks, which are large, of small ranges
}

// AddShape adds the heap's segments, small and large apart.
func (h *Heap) AddShape(sum *[2]Shape) {
	for _, seg := range h.segs {
		if seg == nil {
			continue
		}
		s := &sum[ledger.KindOf(seg.Large)]
		var blocks, free, bytes int64
		end := func() {
			if blocks > 0 {
				s.Segments++
			}
			if blocks > 1 {
				s.Free += free
				s.FreeBytes += bytes
			}
			blocks, free, bytes = 0, 0, 0
		}
		seg.Each(&h.space.Blocks, func(_ block.ID, b *block.Block) {
			switch b.Word().State() {
			case block.Part:
				if !seg.Large {
					sum[ledger.Small].Lent += b.Size
					sum[ledger.Large].Lent -= b.Size
				}
				end()
				return
			case block.Gap:
				end()
				return
			case block.Free, block.Cached:
				free++
				bytes += b.Size
			}
			blocks++
		})
		end()
	}
}
