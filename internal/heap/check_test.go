package heap

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
)

func (r *rig) first() *block.Block  { return r.block(r.heaps[0].segs[0].First) }
func (r *rig) second() *block.Block { return r.block(r.first().Next) }

// corruptions break the books of the first heap, by the rule that they break. The
// heap is that of splitHeap, for C5 that of stitchedHeap. The package cupool does
// so with the rules of a pool.
var corruptions = map[string]map[string]func(r *rig, h *Heap){
	"B1": {
		"a gap":         func(r *rig, _ *Heap) { r.first().Size -= 512 },
		"a wrong end":   func(_ *rig, h *Heap) { h.segs[0].Last = h.segs[0].First },
		"a wrong chain": func(r *rig, _ *Heap) { r.second().Prev = 0 },
	},
	"B2": {"free neighbours": func(r *rig, _ *Heap) { r.second().SetWord(block.MakeWord(1, block.Free)) }},
	"B3": {
		"a set that lost a block":    func(r *rig, h *Heap) { h.free[ledger.Large].Remove(h.segs[0].First, r.first()) },
		"a live block in a free set": func(r *rig, _ *Heap) { r.first().SetWord(block.MakeWord(1, block.Live)) },
		"a block of the other kind": func(r *rig, h *Heap) {
			h.free[ledger.Large].Remove(h.segs[0].First, r.first())
			h.free[ledger.Small].Insert(h.segs[0].First, r.first())
		},
	},
	"B4": {"an odd size": func(r *rig, h *Heap) {
		r.block(h.segs[0].Last).Size += 256
		h.segs[0].Size += 256
	}},
	"B5": {
		"another owner":   func(r *rig, _ *Heap) { r.second().SetOwner(7) },
		"another segment": func(r *rig, _ *Heap) { r.second().Seg = 7 },
	},
	"C2": {
		"a segment not indexed": func(r *rig, h *Heap) { r.space.Index.remove(h.segs[0]) },
		"another owner":         func(r *rig, _ *Heap) { r.space.Index.list[0].Owner = 7 },
		"another segment":       func(r *rig, _ *Heap) { r.space.Index.list[0].Seg = new(block.Segment) },
		"another place":         func(_ *rig, h *Heap) { h.segs = append([]*block.Segment{nil}, h.segs...) },
	},
	"C3": {
		"homed but free":      func(r *rig, _ *Heap) { r.first().SetHome(block.Free, 0, block.Long) },
		"pending on nothing":  func(r *rig, _ *Heap) { r.second().SetWord(block.MakeWord(1, block.Pending)) },
		"homed and in flight": func(r *rig, _ *Heap) { r.second().SetHome(block.Pending, 0, block.Long) },
		"nobody waits": func(r *rig, _ *Heap) {
			r.second().SetWord(block.MakeWord(1, block.Pending))
			r.second().SetUses(1)
		},
		"a wait for no block": func(r *rig, _ *Heap) { r.extra = 512 },
	},
	"C4": {
		"homed bytes": func(_ *rig, h *Heap) { h.homedBytes += 512 },
		"more than the bound": func(r *rig, h *Heap) {
			r.second().SetHome(block.Live, 0, block.Long)
			h.homedBytes = r.second().Size
		},
	},
	"C5": {
		"a chunk elsewhere": func(_ *rig, h *Heap) { h.ranges[ledger.Large][0].chunks[1].off++ },
		"a chunk elsewhere that is in no stitched range": func(_ *rig, h *Heap) {
			chunks := h.ranges[ledger.Large][0].chunks
			chunks[len(chunks)-1].off++
		},
		"a chunk too many": func(_ *rig, h *Heap) {
			x := h.ranges[ledger.Large][0]
			x.chunks = append(x.chunks, &chunk{off: x.seg.Size, size: unit})
		},
		"a place of another chunk": func(_ *rig, h *Heap) { h.ranges[ledger.Large][0].places[1]++ },
		"a gap that is none":       func(_ *rig, h *Heap) { h.ranges[ledger.Large][0].gaps += 512 },
		"a part too few":           func(_ *rig, h *Heap) { h.stitches[0].parts = h.stitches[0].parts[1:] },
		"a part of nothing":        func(_ *rig, h *Heap) { h.stitches[0].seg = nil },
		"a range of nobody":        func(_ *rig, h *Heap) { h.stitches[0].chunks[0].r = &addressRange{seg: h.ranges[ledger.Large][0].seg} },
		"a part that is live":      func(r *rig, h *Heap) { r.block(h.stitches[0].parts[0].id).SetWord(block.MakeWord(1, block.Live)) },
		"a part of two":            func(_ *rig, h *Heap) { h.stitches[0].parts[1] = h.stitches[0].parts[0] },
		"a size without parts": func(_ *rig, h *Heap) {
			h.stitches[0].parts = append(h.stitches[0].parts[:0:0], h.stitches[0].parts...)
			h.stitches[0].seg = &block.Segment{Size: h.stitches[0].seg.Size + 512}
		},
		"a chunk that was replaced": func(_ *rig, h *Heap) {
			c := *h.stitches[0].chunks[0]
			h.stitches[0].chunks[0] = &c
		},
		"a stitched chunk without memory": func(_ *rig, h *Heap) { h.stitches[0].chunks[0].handle = asleep },
		"a mark of nobody":                func(_ *rig, h *Heap) { h.stitches[0].chunks[1].listed = 1 << 40 },
		"a window of nobody":              func(_ *rig, h *Heap) { h.stitches[0].chunks[1].window = 1 << 40 },
		"more mapped than there is":       func(_ *rig, h *Heap) { h.stitches[0].size += unit },
		"mapped before its addresses":     func(_ *rig, h *Heap) { h.stitches[0].at = h.stitches[0].base + unit },
		"mapped behind its addresses":     func(_ *rig, h *Heap) { h.stitches[0].limit = unit },
		"a block elsewhere":               func(_ *rig, h *Heap) { h.stitches[0].skip += 512 },
		"a block behind its range":        func(_ *rig, h *Heap) { h.stitches[0].chunks, h.stitches[0].size = nil, 0 },
		"parts of other memory":           func(_ *rig, h *Heap) { h.stitches[0].chunks[0] = h.ranges[ledger.Large][0].chunks[6] },
		"a gap without a block": func(_ *rig, h *Heap) {
			x := h.ranges[ledger.Large][0]
			x.chunks[0].handle = 0
			x.gaps += x.chunks[0].size
		},
		"a gap over memory": func(r *rig, h *Heap) {
			r.block(h.ranges[ledger.Large][0].seg.Last).SetWord(block.MakeWord(1, block.Gap))
		},
	},
}

// splitHeap is a heap of segments with a live block between two free ones.
func splitHeap(t *testing.T) *rig {
	r := newRig(t, 1, false, policy)
	h := r.heaps[0]
	a := r.alloc(h, 2*mib)
	r.alloc(h, 3*mib)
	r.free(a)
	require.Equal(t, "large [Free 2M][Live 3M][Free 15M]", r.layout(h))
	return r
}

// stitchedHeap is a heap of virtual memory with a live block of 24 MiB that is
// stitched from two pieces of 12.
func stitchedHeap(t *testing.T) *rig {
	r := newRig(t, 1, true, policy)
	h := r.heaps[0]
	left, _, right := r.alloc(h, 12*mib), r.alloc(h, 8*mib), r.alloc(h, 12*mib)
	r.alloc(h, 2*mib)
	r.free(left, right)
	r.alloc(h, 24*mib)
	require.Contains(t, r.layout(h), "stitched [Live 24M]")
	return r
}

// Every rule, broken on purpose: Check reports its number.
func TestCheck(t *testing.T) {
	for rule, ways := range corruptions {
		for name, corrupt := range ways {
			t.Run(rule+"/"+name, func(t *testing.T) {
				r := splitHeap(t)
				if rule == "C5" {
					r = stitchedHeap(t)
				}
				r.check()
				corrupt(r, r.heaps[0])
				require.ErrorContains(t, r.heaps[0].Check(r.extra), rule+": ")
			})
		}
	}
}

// A rule that is broken is reported with the picture of the segment.
func TestCheckShowsTheSegment(t *testing.T) {
	r := splitHeap(t)
	corruptions["B2"]["free neighbours"](r, r.heaps[0])
	require.ErrorContains(t, r.heaps[0].Check(0), "in segment 0x10000000000 [Free 2M][Free 3M][Free 15M]")
}

// TestCompare: the books are wrong where any number of either kind is another one than
// what was found.
func TestCompare(t *testing.T) {
	r := splitHeap(t)
	h := r.heaps[0]
	r.alloc(h, 1000)
	var found [2]Census
	h.Count(&found)
	totals := r.space.Book.Sum([]*ledger.Ledger{&h.Ledger})
	counted := found[0].Reserved + found[1].Reserved
	require.NoError(t, r.space.Compare(totals, &found, counted))
	require.ErrorContains(t, r.space.Compare(totals, &found, counted+1), "C1: ")
	for k := range found {
		for name, f := range map[string]func(n *Census) *int64{
			"segments": func(n *Census) *int64 { return &n.Segments }, "reserved": func(n *Census) *int64 { return &n.Reserved },
			"asleep": func(n *Census) *int64 { return &n.Asleep }, "lent": func(n *Census) *int64 { return &n.Lent },
			"out": func(n *Census) *int64 { return &n.Out }, "out bytes": func(n *Census) *int64 { return &n.OutBytes },
			"requested": func(n *Census) *int64 { return &n.Requested }, "pending": func(n *Census) *int64 { return &n.Pending },
			"pending bytes": func(n *Census) *int64 { return &n.PendBytes }, "pending requested": func(n *Census) *int64 { return &n.PendRequested },
			"free bytes": func(n *Census) *int64 { return &n.FreeBytes },
			"fast bytes": func(n *Census) *int64 { return &n.FastBytes }, "leaving": func(n *Census) *int64 { return &n.Leaving },
			"splits": func(n *Census) *int64 { return &n.Splits }, "split bytes": func(n *Census) *int64 { return &n.SplitBytes },
		} {
			for _, by := range []int64{1, -1} {
				wrong := found
				*f(&wrong[k]) += by
				require.ErrorContains(t, r.space.Compare(totals, &wrong, counted), "C1: kind "+strconv.Itoa(k), name)
			}
		}
		wrong := found // where two are wrong alike
		wrong[k].Reserved, wrong[k].OutBytes = found[k].Reserved+512, found[k].OutBytes+512
		require.ErrorContains(t, r.space.Compare(totals, &wrong, counted+512), "reserved")
		wrong = found
		wrong[k].OutBytes, wrong[k].FreeBytes = found[k].OutBytes+512, found[k].FreeBytes-512
		require.ErrorContains(t, r.space.Compare(totals, &wrong, counted), "out bytes")
		wrong[k].OutBytes, wrong[k].PendBytes = found[k].OutBytes, found[k].PendBytes+512
		require.ErrorContains(t, r.space.Compare(totals, &wrong, counted), "pending bytes")
	}
}
