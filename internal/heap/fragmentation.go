package heap

// A stitch costs the driver's time for each chunk that it maps. Where blocks live
// long, best fit leaves holes between them that nothing fits, and something has to
// be stitched at every step. A heap is fragmented when it stitches and the heaps of its
// pool have mapped more chunks a second time than the pool has, and than stitchesPerGiB
// for what they were asked for. From then on
//
//   - its large blocks are placed by first fit, which keeps what lives long together,
//   - it grows by larger chunks where the pool is small, so that a stitch has fewer.
//
// Programs whose blocks die within a step stay below the rate: best fit and small
// chunks waste less for those.
const (
	stitchesPerGiB = 50

	fragmentedChunkFraction = 24       // in place of chunkFraction
	fragmentedMaxChunk      = 10 << 20 // what the chunks grow to by that
)

// fragmentation is what a heap knows about its stitches.
type fragmentation struct {
	asked      int64 // bytes of searches for a request that Space.asked lacks
	fragmented bool
}

// askedPart is how many bytes a heap is asked for between two looks at Space.asked.
const askedPart = 1 << 30

// noteAsked counts a search for a request.
func (h *Heap) noteAsked(bytes int64) {
	if h.asked += bytes; h.asked >= askedPart {
		h.tellAsked()
	}
}

func (h *Heap) tellAsked() {
	h.space.asked.Add(h.asked)
	h.asked = 0
}

// noteStitch counts the chunks of a stitch.
func (h *Heap) noteStitch(chunks int) {
	h.tellAsked()
	has := h.space.Memory.Handles.Load()
	if h.space.mapped.Add(int64(chunks)) > has+(h.space.asked.Load()>>20)*stitchesPerGiB>>10 {
		h.fragmented = true
	}
}
