package cupool

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/sizeclass"
)

// How much memory a pool asks the device for, and which blocks stay whole
// (Config.GrowthFactor, InitialSize, MaxSplit).

// maxGrowthFactor bounds GrowthFactor to what anybody can mean.
const maxGrowthFactor = 64

// segmentSize returns the bytes to ask the device for when a block of
// rounded bytes has to be made. The sizes are PyTorch's.
func (cfg *Config) segmentSize(rounded int64) int64 {
	switch {
	case cfg.GrowthFactor == 1:
		return sizeclass.RoundTo(rounded, cfg.SegmentRounding)
	case rounded <= cfg.SmallLimit:
		return cfg.SmallSegment
	case rounded < cfg.LargeLimit:
		return cfg.LargeSegment
	default:
		return sizeclass.RoundTo(rounded, cfg.SegmentRounding)
	}
}

// extraLocked returns the bytes that the stream should grow by, with a
// GrowthFactor, when that is more than it needs; else 0.
func (s *Stream) extraLocked(unit int64) int64 {
	cfg := &s.c.cfg
	if cfg.GrowthFactor <= 1 {
		return 0
	}
	more := min((cfg.GrowthFactor-1)*float64(s.heldLocked()), sizeclass.MaxRequest)
	if cfg.MaxSplit > 0 { // a segment of that size would serve no small request
		more = min(more, float64(cfg.MaxSplit-unit))
	}
	return int64(more) / unit * unit
}

// newSegmentForLocked gets a segment for the request: of the size that the
// GrowthFactor wants, of the size that the configuration has for it, or of
// what it needs, whichever the device does not refuse.
func (s *Stream) newSegmentForLocked(r request) (id block.ID, b *block.Block, err error) {
	cfg := &s.c.cfg
	want, least := r.segment(), sizeclass.RoundTo(r.rounded, cfg.SegmentRounding)
	sizes := []int64{max(want, s.extraLocked(cfg.SegmentRounding)), want, min(want, least)}
	for _, size := range slices.Compact(sizes) {
		if id, b, err = s.newSegmentLocked(size, r.kind); !errors.Is(err, ErrOutOfMemory) {
			break
		}
	}
	return id, b, err
}

// isOversize reports whether a block of the pool is kept whole.
func (cfg *Config) isOversize(k kind, size int64) bool {
	return cfg.MaxSplit > 0 && k == large && size >= cfg.MaxSplit
}

// fitsBelow returns the size from which on a free block is too large for a
// request of rounded bytes.
func (cfg *Config) fitsBelow(k kind, rounded int64) int64 {
	switch {
	case cfg.MaxSplit == 0 || k == small:
		return math.MaxInt64
	case rounded < cfg.MaxSplit:
		return cfg.MaxSplit
	default:
		return rounded + cfg.MaxNonSplitRounding
	}
}

// reserveInitial gets Config.InitialSize for the default stream. Segments
// stay below MaxSplit, so that any request can be cut from them.
func (c *Caching) reserveInitial() error {
	s := c.def
	s.mu.Lock()
	defer s.mu.Unlock()
	unit := c.cfg.SegmentRounding
	if c.vm != nil {
		unit = c.granularity
	}
	left := sizeclass.RoundTo(c.cfg.InitialSize, unit)
	for left > 0 {
		size := left
		if c.cfg.MaxSplit > 0 {
			size = min(size, max((c.cfg.MaxSplit-1)/unit, 1)*unit)
		}
		if err := s.prepareLocked(size); err != nil {
			return fmt.Errorf("cupool: reserving the initial size of %d bytes: %w", c.cfg.InitialSize, err)
		}
		left -= size
	}
	return nil
}

// prepareLocked adds size free bytes of the device to the large pool.
func (s *Stream) prepareLocked(size int64) error {
	if s.c.vm != nil {
		return s.growHomeLocked(large, size)
	}
	id, b, err := s.newSegmentLocked(size, large)
	if err == nil {
		s.insertFreeLocked(s.segs[b.Seg], id, b)
	}
	return err
}
