package heap

import "github.com/cupool/cupool/internal/ledger"

// A stitch costs the driver's time for each chunk that it maps. Where blocks live
// long, best fit leaves holes between them that nothing fits, and something has to
// be stitched at every step. A heap is fragmented when it has mapped more chunks a
// second time than it has, and than stitchesPerGiB for what it was asked for. From
// then on
//
//   - its large blocks are placed by first fit, which keeps what lives long together,
//   - it grows by larger chunks, so that a stitch has fewer,
//   - it grows rather than stitches while it holds little more than the most that
//     was ever in use.
//
// Programs whose blocks die within a step stay below the rate: best fit and small
// chunks waste less for those.
const (
	stitchesPerGiB = 40

	fragmentedChunkFraction = 24 // in place of chunkFraction
	aheadFraction           = 32 // of the most that was in use
)

// fragmentation is what a heap knows about its stitches.
type fragmentation struct {
	asked      int64 // bytes of all searches for a request
	mapped     int64 // chunks of all stitches
	most       int64 // bytes that were in use at once when the heap was fragmented
	fragmented bool
}

// noteStitch counts a stitch of a heap that has so many chunks.
func (f *fragmentation) noteStitch(mapped, chunks int) {
	f.mapped += int64(mapped)
	if f.mapped > int64(chunks)+(f.asked>>20)*stitchesPerGiB>>10 {
		f.fragmented = true
	}
}

// growsAhead reports whether the heap grows for a large request that could be
// stitched.
func (h *Heap) growsAhead(rounded int64) bool {
	if !h.fragmented {
		return false
	}
	live, pending, held := h.Usage()
	h.most = max(h.most, live+pending+rounded)
	return held+rounded-h.tail(ledger.Large) <= h.most+h.most/aheadFraction
}
