package conformance

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/cupool/cupool"
)

// shadow knows all live memory: what is handed out twice, overlaps or is
// not aligned is found at once. Blocks are added after Alloc and taken out
// before Free, so that it is right from several goroutines too.
type shadow struct {
	mu    sync.Mutex
	spans []span // by start
	bytes int64
}

type span struct {
	start, end uint64
	seed       uint64
}

func (h *shadow) find(start uint64) (int, bool) {
	return slices.BinarySearchFunc(h.spans, start, func(s span, a uint64) int { return cmp.Compare(s.start, a) })
}

func (h *shadow) add(b cupool.Block, seed uint64) error {
	s := span{uint64(b.Ptr()), uint64(b.Ptr()) + uint64(b.Size()), seed}
	h.mu.Lock()
	defer h.mu.Unlock()
	i, _ := h.find(s.start)
	switch {
	case s.start%512 != 0 || s.start == 0:
		return fmt.Errorf("block at 0x%x is not aligned to 512 bytes", s.start)
	case i < len(h.spans) && h.spans[i].start < s.end:
		return fmt.Errorf("block %d [0x%x, 0x%x) overlaps live block %d at 0x%x", seed, s.start, s.end, h.spans[i].seed, h.spans[i].start)
	case i > 0 && h.spans[i-1].end > s.start:
		return fmt.Errorf("block %d at 0x%x is inside live block %d at 0x%x", seed, s.start, h.spans[i-1].seed, h.spans[i-1].start)
	}
	h.spans = slices.Insert(h.spans, i, s)
	h.bytes += b.Size()
	return nil
}

func (h *shadow) remove(b cupool.Block) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, ok := h.find(uint64(b.Ptr()))
	if !ok {
		return fmt.Errorf("no live block at %v", b.Ptr())
	}
	h.spans = slices.Delete(h.spans, i, i+1)
	h.bytes -= b.Size()
	return nil
}

// A spot is a range of a block that is written and verified: all of a small
// block, words at the edges and in the middle of a large one.
type spot struct{ off, n int64 }

func spots(size int64) []spot {
	const n = 64
	if size <= 2*kib {
		return []spot{{0, size}}
	}
	return []spot{{0, n}, {size / 2, n}, {size - n, n}}
}

// pattern returns what a spot of the block with a seed holds.
func pattern(seed uint64, sp spot) []byte {
	out := make([]byte, (sp.n+7)&^7)
	x := seed*0x9E3779B97F4A7C15 + uint64(sp.off)
	for i := 0; i < len(out); i += 8 {
		x += 0x9E3779B97F4A7C15
		z := (x ^ x>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		binary.LittleEndian.PutUint64(out[i:], z^z>>31)
	}
	return out[:sp.n]
}

// write fills a block's spots in the order of a stream.
func write(b cupool.Block, seed uint64, s *cupool.Stream) error {
	for _, sp := range spots(b.Size()) {
		if err := s.CopyIn(b.Ptr()+cupool.Ptr(sp.off), pattern(seed, sp)); err != nil {
			return err
		}
	}
	return nil
}

// copyTo copies a block's spots to a block of the same size.
func copyTo(dst, src cupool.Block, s *cupool.Stream) error {
	for _, sp := range spots(src.Size()) {
		if err := s.Copy(dst.Ptr()+cupool.Ptr(sp.off), src.Ptr()+cupool.Ptr(sp.off), sp.n); err != nil {
			return err
		}
	}
	return nil
}

// verify waits for the stream and compares a block's spots with its pattern.
func verify(b cupool.Block, seed uint64, s *cupool.Stream) error {
	for _, sp := range spots(b.Size()) {
		got := make([]byte, sp.n)
		if err := s.CopyOut(got, b.Ptr()+cupool.Ptr(sp.off)); err != nil {
			return err
		}
		if want := pattern(seed, sp); !bytes.Equal(got, want) {
			return fmt.Errorf("block %d at %v (%d bytes) is corrupt at offset %d: it begins % x, want % x", seed, b.Ptr(), b.Size(), sp.off, got[:min(8, len(got))], want[:min(8, len(want))])
		}
	}
	return nil
}
