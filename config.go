package cupool

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/cupool/cupool/internal/sizeclass"
)

// Sizes that PyTorch's allocator uses and that are the defaults here.
const (
	defaultSmallLimit      = 1 << 20
	defaultSmallSegment    = 2 << 20
	defaultLargeSegment    = 20 << 20
	defaultLargeLimit      = 10 << 20
	defaultSegmentRounding = 2 << 20
	defaultMinSplit        = 1<<20 + sizeclass.Quantum
	defaultMagazineBytes   = 256 << 20
	defaultNonSplitRest    = 20 << 20
)

// Backing is where the memory of an allocator comes from.
type Backing int

// The backings. BackingAuto is BackingVMM where the device has virtual
// memory management, else BackingSegments.
const (
	BackingAuto Backing = iota
	// BackingSegments asks the device for a segment at a time and gives
	// back whole ones. It works everywhere.
	BackingSegments
	// BackingVMM maps physical memory to address ranges piece by piece and
	// stitches free pieces together. It needs a Driver with VirtualMemory.
	BackingVMM
)

var backingNames = [...]string{"auto", "segments", "vmm"}

// String returns the name: auto, segments or vmm.
func (b Backing) String() string {
	if names := backingNames; b >= 0 && int(b) < len(names) {
		return names[b]
	}
	return fmt.Sprintf("Backing(%d)", int(b))
}

// Strategy is how an allocator chooses among its free blocks.
type Strategy int

// The strategies. None changes what a program may rely on.
const (
	// BestFit takes the smallest block that is large enough, of several the
	// one with the lowest segment number and address.
	BestFit Strategy = iota
	// FirstFit takes the block with the lowest segment number and address
	// that is large enough. It looks at all that are, so it is slower, and
	// it takes small blocks from no fast bins.
	FirstFit
	// Segregated is BestFit for sizes that are rounded up to one of eight
	// between two powers of two (or as Config.Divisions says), so that a
	// freed block serves all requests of its class whole. It wastes up to an
	// eighth of a block.
	Segregated
	// PowerOfTwo is BestFit for sizes that are rounded up to a power of two.
	// It wastes up to half of a block.
	PowerOfTwo
)

var strategyNames = [...]string{"best-fit", "first-fit", "segregated", "power-of-two"}

// String returns the name: best-fit, first-fit, segregated or power-of-two.
func (s Strategy) String() string {
	if names := strategyNames; s >= 0 && int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("Strategy(%d)", int(s))
}

// Config sets up a Caching allocator. The zero value is the host device
// with PyTorch's sizes and no limit. Sizes are in bytes. New reads nothing
// from the environment; ConfigFromEnv does, for programs that ask for it.
type Config struct {
	// Driver is the device. nil: a new host device of the default capacity,
	// which Close closes. A Driver given here stays the caller's to close.
	Driver Driver

	// Limit bounds the bytes reserved from the device. 0: no limit.
	Limit int64
	// Fraction bounds them to a part of the device's total memory, in
	// (0, 1]. 0: no limit. With both, the smaller one holds.
	Fraction float64

	// SoftLimit is where reclaiming starts, in bytes reserved: beyond it,
	// idle memory serves other streams and pools or is given back before the
	// device is asked for more, even when the program then often has to ask
	// again. What is needed is reserved all the same, up to Limit. 0: none
	// but the most that was ever reserved.
	SoftLimit int64
	// Decay is the time after which memory that nobody needed meanwhile goes
	// back to the device. It costs a goroutine, which ends with Close. It
	// waits for nothing: what streams at work may still use stays, and
	// segments do while any stream is at work. 0: never; idle memory is kept
	// until it is wanted elsewhere. Else at least 50 ms.
	Decay time.Duration

	// SmallLimit is the largest block, after rounding, that comes from the
	// small pool. 0: 1 MiB.
	SmallLimit int64
	// SmallSegment is the size of the small pool's segments. 0: 2 MiB.
	SmallSegment int64
	// LargeSegment is the size of the segments that serve requests below
	// LargeLimit. 0: 20 MiB.
	LargeSegment int64
	// LargeLimit is the size from which a request gets a segment of its own
	// size, rounded up to SegmentRounding. 0: 10 MiB.
	LargeLimit int64
	// SegmentRounding is the unit of segments for requests of LargeLimit
	// and more. 0: 2 MiB, the page of the GPU.
	SegmentRounding int64
	// MinSplit is the smallest rest that a large block is split for; less
	// is left in the block. 0: 1 MiB and 512 bytes, which is PyTorch's
	// "more than 1 MiB".
	MinSplit int64

	// MinBlock is the unit of blocks: sizes are rounded up to a multiple of
	// it, and addresses in a segment are multiples of it from its start. A
	// power of two, at most SmallLimit, that divides the sizes of segments.
	// 0: 512.
	MinBlock int64
	// MaxSplit is the size from which segments are kept whole (PyTorch's
	// max_split_size): a block that large serves no smaller request, and
	// one of its size is not split for a request of less, but given away
	// whole if less than MaxNonSplitRounding of it is wasted. It is for
	// segments, which BackingAuto then means; with BackingVMM it is an
	// error. At least LargeSegment. 0: any block is split.
	MaxSplit int64
	// MaxNonSplitRounding is what may be wasted of a block of MaxSplit or
	// more. It needs MaxSplit. 0: 20 MiB.
	MaxNonSplitRounding int64
	// Divisions rounds sizes up to few between two powers of two, so that
	// blocks serve again for similar requests. Zero: to MinBlock only, or as
	// the Strategy says; PowerOfTwo allows no other.
	Divisions Divisions

	// GrowthFactor is how a pool grows. 0: by segments of the sizes above.
	// 1: by what a request needs, in units of SegmentRounding. More: to so
	// many times what the stream holds, or else by what it needs where limit
	// or device refuse that. Virtual memory grows by what is missing for 0
	// and 1.
	GrowthFactor float64
	// InitialSize is reserved from the beginning, for the large blocks of
	// the default stream; other streams take it over while it is idle. 0:
	// nothing.
	InitialSize int64
	// GarbageCollectionThreshold is the part of the limit, or without one of
	// the device's memory, beyond which cached segments are given back before
	// the device is asked for more, those that have been idle for longest
	// first. Virtual memory has its cached memory serve instead, as beyond a
	// SoftLimit. In (0, 1); 0: none.
	GarbageCollectionThreshold float64

	// Backing says where memory comes from. 0: BackingAuto.
	Backing Backing

	// Strategy says which free block serves a request. 0: BestFit.
	Strategy Strategy

	// MagazineBytes bounds the blocks of each stream that are kept for
	// lock-free reuse, in bytes; single blocks may take up to a quarter of
	// it. 0: 256 MiB. Negative: none, and small blocks are merged with
	// their neighbours at once, which makes placement depend on nothing but
	// the sequence of calls.
	MagazineBytes int64

	// RecordStacks keeps the Go stack of every allocation, for the report
	// of leaks. It costs about a microsecond an allocation and turns the
	// lock-free path off.
	RecordStacks bool

	// OnOutOfMemory is asked when everything else has failed. It frees what
	// it can and returns true to have the allocator search once more. It is
	// called without locks and may use the allocator.
	OnOutOfMemory func(requested int64) bool

	// BeforeGrow is called before the device is asked for memory for a
	// request, with the bytes of the block that is missing. It is called
	// without locks and may use the allocator; what it frees can serve.
	BeforeGrow func(size int64)
	// OnRelease is called after memory went back to the device, with the
	// bytes, also by Trim, Sleep and Close. It is called without locks and may
	// use the allocator.
	OnRelease func(released int64)

	// Logger gets what goes wrong where no error can be returned. nil: none.
	Logger *slog.Logger

	classes   bool                   // sizes are rounded by more than sizeclass.Round
	classBits [len(Divisions{})]int8 // log2 of Divisions; -1: none
}

// withDefaults returns the Config with every zero field set, or a
// *ConfigError.
func (cfg Config) withDefaults() (Config, error) {
	for _, f := range []struct {
		p   *int64
		def int64
	}{
		{&cfg.SmallLimit, defaultSmallLimit},
		{&cfg.SmallSegment, defaultSmallSegment},
		{&cfg.LargeSegment, defaultLargeSegment},
		{&cfg.LargeLimit, defaultLargeLimit},
		{&cfg.SegmentRounding, defaultSegmentRounding},
		{&cfg.MinSplit, defaultMinSplit},
		{&cfg.MagazineBytes, defaultMagazineBytes},
		{&cfg.MinBlock, sizeclass.Quantum},
	} {
		if *f.p == 0 {
			*f.p = f.def
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := cfg.validate(); err != nil {
		return cfg, err
	}
	if cfg.MaxSplit > 0 {
		cfg.Backing = BackingSegments
		if cfg.MaxNonSplitRounding == 0 {
			cfg.MaxNonSplitRounding = defaultNonSplitRest
		}
	}
	cfg.setClasses()
	return cfg, nil
}

func (cfg *Config) validate() error {
	const q = sizeclass.Quantum
	bytes := func(n int64) string { return " (" + formatBytes(n) + ")" }
	segment := func(size int64) bool { return size > 0 && size%q == 0 && size <= sizeclass.MaxRequest }
	for _, f := range []struct {
		name   string
		value  any
		ok     bool
		reason string
	}{
		{"Limit", cfg.Limit, cfg.Limit >= 0, "must not be negative; 0 means no limit"},
		{"SoftLimit", cfg.SoftLimit, cfg.SoftLimit >= 0, "must not be negative; 0 means none"},
		{"Decay", cfg.Decay, cfg.Decay >= 0 && (cfg.Decay == 0 || cfg.Decay >= minDecay), "must be 0 (never) or at least " + minDecay.String()},
		{"Fraction", cfg.Fraction, cfg.Fraction >= 0 && cfg.Fraction <= 1, "must be in (0, 1]; 0 means no limit"},
		{"SmallLimit", cfg.SmallLimit, cfg.SmallLimit > 0, "must be positive"},
		{"SmallSegment", cfg.SmallSegment, segment(cfg.SmallSegment) && cfg.SmallSegment >= cfg.SmallLimit, "must be a multiple of 512, below 2^61 and at least SmallLimit" + bytes(cfg.SmallLimit)},
		{"LargeLimit", cfg.LargeLimit, cfg.LargeLimit > 0, "must be positive"},
		{"LargeSegment", cfg.LargeSegment, segment(cfg.LargeSegment) && cfg.LargeSegment >= cfg.LargeLimit, "must be a multiple of 512, below 2^61 and at least LargeLimit" + bytes(cfg.LargeLimit)},
		{"SegmentRounding", cfg.SegmentRounding, segment(cfg.SegmentRounding), "must be a positive multiple of 512 below 2^61"},
		{"Backing", cfg.Backing, cfg.Backing >= BackingAuto && cfg.Backing <= BackingVMM, "must be BackingAuto, BackingSegments or BackingVMM"},
		{"Strategy", cfg.Strategy, cfg.Strategy >= BestFit && cfg.Strategy <= PowerOfTwo, "must be BestFit, FirstFit, Segregated or PowerOfTwo"},
		{"MinSplit", cfg.MinSplit, cfg.MinSplit >= q, "must be at least 512"},
		{"MinBlock", cfg.MinBlock, cfg.minBlockOK(), "must be a power of two, from 512 to SmallLimit" + bytes(cfg.SmallLimit) + ", that divides SmallSegment" + bytes(cfg.SmallSegment) + ", LargeSegment" + bytes(cfg.LargeSegment) + " and SegmentRounding" + bytes(cfg.SegmentRounding)},
		{"MaxSplit", cfg.MaxSplit, cfg.MaxSplit == 0 || cfg.MaxSplit >= cfg.LargeSegment, "must be at least LargeSegment" + bytes(cfg.LargeSegment) + "; 0 means none"},
		{"MaxSplit", cfg.MaxSplit, cfg.MaxSplit == 0 || cfg.Backing != BackingVMM, "is for segments, not for Backing vmm, which splits and joins all blocks"},
		{"MaxNonSplitRounding", cfg.MaxNonSplitRounding, cfg.MaxNonSplitRounding >= 0 && (cfg.MaxSplit > 0 || cfg.MaxNonSplitRounding == 0), "must not be negative, and needs MaxSplit; 0 means 20 MiB"},
		{"Divisions", cfg.Divisions, cfg.Divisions.valid(), "must be powers of two up to 2^20; 0 means none"},
		{"Divisions", cfg.Divisions, cfg.Strategy != PowerOfTwo || cfg.Divisions == Divisions{}, "must not be set with Strategy power-of-two, which rounds by itself"},
		{"GrowthFactor", cfg.GrowthFactor, cfg.GrowthFactor == 0 || cfg.GrowthFactor >= 1 && cfg.GrowthFactor <= maxGrowthFactor, "must be 0 (fixed sizes) or from 1 to 64"},
		{"InitialSize", cfg.InitialSize, cfg.InitialSize >= 0 && cfg.InitialSize <= sizeclass.MaxRequest, "must not be negative; 0 means nothing"},
		{"InitialSize", cfg.InitialSize, cfg.Limit == 0 || cfg.InitialSize <= cfg.Limit, "must not be larger than Limit" + bytes(cfg.Limit)},
		{"GarbageCollectionThreshold", cfg.GarbageCollectionThreshold, cfg.GarbageCollectionThreshold >= 0 && cfg.GarbageCollectionThreshold < 1, "must be in (0, 1); 0 means none"},
	} {
		if !f.ok {
			return &ConfigError{Field: f.name, Value: f.value, Reason: f.reason}
		}
	}
	return nil
}

// limitOn returns the bytes that may be reserved on a device, or MaxInt64.
func (cfg *Config) limitOn(d Driver) (int64, error) {
	limit := int64(math.MaxInt64)
	if cfg.Limit > 0 {
		limit = cfg.Limit
	}
	if cfg.Fraction > 0 {
		_, total, err := d.MemInfo()
		if err != nil {
			return 0, err
		}
		limit = min(limit, int64(math.Round(cfg.Fraction*float64(total))))
	}
	return limit, nil
}

// virtualMemory returns the device's virtual memory as far as it is wanted
// and there.
func (cfg *Config) virtualMemory() (VirtualMemory, error) {
	vm, ok := cfg.Driver.(VirtualMemory)
	ok = ok && vm.VMMGranularity() > 0
	switch {
	case cfg.Backing == BackingVMM && !ok:
		return nil, fmt.Errorf("cupool: backing vmm on %s: %w", cfg.Driver.Name(), ErrNotSupported)
	case cfg.Backing != BackingSegments && ok:
		return vm, nil
	default:
		return nil, nil
	}
}
