// Package confcheck has the defaults of an allocator's settings, says which settings
// cannot be, and works out what they come to on a device.
package confcheck

import (
	"math"
	"time"

	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/device"
	"github.com/cupool/cupool/internal/sizeclass"
)

// The defaults, which are PyTorch's where it has such a setting.
const (
	NonSplitRest        = 20 << 20
	Quarantine          = 64 << 20
	SegregatedDivisions = 8

	smallLimit      = 1 << 20
	smallSegment    = 2 << 20
	largeSegment    = 20 << 20
	largeLimit      = 10 << 20
	segmentRounding = 2 << 20
	minSplit        = 1<<20 + sizeclass.Quantum
	magazineBytes   = 256 << 20
)

const (
	maxCanaries     = 1 << 20
	maxGrowthFactor = 64 // more than anybody can mean
)

// Settings are fields of a cupool.Config by their names there. What has a default
// is given by its address.
type Settings struct {
	SmallLimit, SmallSegment, LargeLimit, LargeSegment, SegmentRounding, MinSplit, MagazineBytes, MinBlock *int64

	Limit, SoftLimit, MaxSplit, MaxNonSplitRounding, InitialSize, Canaries int64
	Fraction, GrowthFactor, GarbageCollectionThreshold                     float64
	Decay, WaitTimeout, MinDecay                                           time.Duration

	Backing, Strategy, Divisions any // for errors
	Classes                      sizeclass.Divisions
	KnownBacking, KnownStrategy  bool // they are constants that there are
	VirtualMemory, PowerOfTwo    bool // they are these constants
}

// Complete sets what is zero and has a default.
func (s *Settings) Complete() {
	for p, def := range map[*int64]int64{
		s.SmallLimit: smallLimit, s.SmallSegment: smallSegment, s.LargeLimit: largeLimit, s.LargeSegment: largeSegment,
		s.SegmentRounding: segmentRounding, s.MinSplit: minSplit, s.MagazineBytes: magazineBytes, s.MinBlock: sizeclass.Quantum,
	} {
		if *p == 0 {
			*p = def
		}
	}
}

// Check returns a *device.ConfigError for the first setting that cannot be.
func (s *Settings) Check() error {
	const q = sizeclass.Quantum
	bytes := func(n int64) string { return " (" + bytesize.Format(n) + ")" }
	segment := func(size int64) bool { return size > 0 && size%q == 0 && size <= sizeclass.MaxRequest }
	smallLimit, smallSegment, largeLimit, largeSegment := *s.SmallLimit, *s.SmallSegment, *s.LargeLimit, *s.LargeSegment
	for _, f := range []struct {
		name   string
		value  any
		ok     bool
		reason string
	}{
		{"Limit", s.Limit, s.Limit >= 0, "must not be negative; 0 means no limit"},
		{"SoftLimit", s.SoftLimit, s.SoftLimit >= 0, "must not be negative; 0 means none"},
		{"Decay", s.Decay, s.Decay >= 0 && (s.Decay == 0 || s.Decay >= s.MinDecay), "must be 0 (never) or at least " + s.MinDecay.String()},
		{"WaitTimeout", s.WaitTimeout, s.WaitTimeout >= 0, "must not be negative; 0 means no bound"},
		{"Fraction", s.Fraction, s.Fraction >= 0 && s.Fraction <= 1, "must be in (0, 1]; 0 means no limit"},
		{"SmallLimit", smallLimit, smallLimit > 0, "must be positive"},
		{"SmallSegment", smallSegment, segment(smallSegment) && smallSegment >= smallLimit, "must be a multiple of 512, below 2^61 and at least SmallLimit" + bytes(smallLimit)},
		{"LargeLimit", largeLimit, largeLimit > 0, "must be positive"},
		{"LargeSegment", largeSegment, segment(largeSegment) && largeSegment >= largeLimit, "must be a multiple of 512, below 2^61 and at least LargeLimit" + bytes(largeLimit)},
		{"SegmentRounding", *s.SegmentRounding, segment(*s.SegmentRounding), "must be a positive multiple of 512 below 2^61"},
		{"Backing", s.Backing, s.KnownBacking, "must be BackingAuto, BackingSegments or BackingVMM"},
		{"Strategy", s.Strategy, s.KnownStrategy, "must be BestFit, FirstFit, Segregated or PowerOfTwo"},
		{"MinSplit", *s.MinSplit, *s.MinSplit >= min(q, *s.MinBlock), "must be at least 512, or MinBlock where that is less"},
		{"MinBlock", *s.MinBlock, s.minBlockOK(), "must be a power of two, from 256, which CUDA aligns memory to, to SmallLimit" + bytes(smallLimit) + ", that divides SmallSegment" + bytes(smallSegment) + ", LargeSegment" + bytes(largeSegment) + " and SegmentRounding" + bytes(*s.SegmentRounding)},
		{"MaxSplit", s.MaxSplit, s.MaxSplit == 0 || s.MaxSplit >= largeSegment, "must be at least LargeSegment" + bytes(largeSegment) + "; 0 means none"},
		{"MaxSplit", s.MaxSplit, s.MaxSplit == 0 || !s.VirtualMemory, "is for segments, not for Backing vmm, which splits and joins all blocks"},
		{"MaxNonSplitRounding", s.MaxNonSplitRounding, s.MaxNonSplitRounding >= 0 && (s.MaxSplit > 0 || s.MaxNonSplitRounding == 0), "must not be negative, and needs MaxSplit; 0 means 20 MiB"},
		{"Divisions", s.Divisions, s.Classes.Valid(), "must be powers of two up to 2^20; 0 means none"},
		{"Divisions", s.Divisions, !s.PowerOfTwo || s.Classes == sizeclass.Divisions{}, "must not be set with Strategy power-of-two, which rounds by itself"},
		{"GrowthFactor", s.GrowthFactor, s.GrowthFactor == 0 || s.GrowthFactor >= 1 && s.GrowthFactor <= maxGrowthFactor, "must be 0 (fixed sizes) or from 1 to 64"},
		{"InitialSize", s.InitialSize, s.InitialSize >= 0 && s.InitialSize <= sizeclass.MaxRequest, "must not be negative; 0 means nothing"},
		{"InitialSize", s.InitialSize, s.Limit == 0 || s.InitialSize <= s.Limit, "must not be larger than Limit" + bytes(s.Limit)},
		{"Sanitize.Canaries", s.Canaries, s.Canaries >= 0 && s.Canaries <= maxCanaries, "must be from 0 (none) to 1 MiB"},
		{"GarbageCollectionThreshold", s.GarbageCollectionThreshold, s.GarbageCollectionThreshold >= 0 && s.GarbageCollectionThreshold < 1, "must be in (0, 1); 0 means none"},
	} {
		if !f.ok {
			return &device.ConfigError{Field: f.name, Value: f.value, Reason: f.reason}
		}
	}
	return nil
}

// minBlockOK reports whether MinBlock is a unit for all segments.
func (s *Settings) minBlockOK() bool {
	n := *s.MinBlock
	return n >= sizeclass.Least && n&(n-1) == 0 &&
		(n <= sizeclass.Quantum || n <= *s.SmallLimit && (*s.SmallSegment|*s.LargeSegment|*s.SegmentRounding)&(n-1) == 0)
}

// Device says how much memory it has.
type Device interface {
	MemInfo() (free, total int64, err error)
}

// Limit returns the bytes that may be reserved on a device with a limit and a
// fraction, which are 0 for none, or MaxInt64.
func Limit(d Device, limit int64, fraction float64) (int64, error) {
	if limit <= 0 {
		limit = math.MaxInt64
	}
	if fraction > 0 {
		_, total, err := d.MemInfo()
		if err != nil {
			return 0, err
		}
		limit = min(limit, int64(math.Round(fraction*float64(total))))
	}
	return limit, nil
}

// Threshold returns the bytes that a part of the limit comes to, or of the
// device's memory where the limit is MaxInt64; 0 for no part.
func Threshold(d Device, limit int64, part float64) (int64, error) {
	if part == 0 {
		return 0, nil
	}
	if limit == math.MaxInt64 {
		var err error
		if _, limit, err = d.MemInfo(); err != nil {
			return 0, err
		}
	}
	return max(int64(part*float64(limit)), 1), nil
}
