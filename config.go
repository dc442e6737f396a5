package cupool

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/confenv"
	"github.com/cupool/cupool/internal/decay"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/nilptr"
	"github.com/cupool/cupool/internal/sizeclass"
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
	// stitches free pieces together (GMLake, Guo and others, ASPLOS 2024). It needs a
	// Driver with VirtualMemory.
	BackingVMM
)

// String returns the name: auto, segments or vmm.
func (b Backing) String() string {
	return confenv.Name("Backing", confenv.Backings, int(b))
}

// Strategy is how an allocator chooses among its free blocks.
type Strategy int

// The strategies. None changes what a program may rely on.
const (
	// BestFit takes the smallest block that is large enough, of several the
	// one with the lowest segment number and address. On segments that became
	// fragmented, blocks that live long do not go into large ones.
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

// String returns the name: best-fit, first-fit, segregated or power-of-two.
func (s Strategy) String() string {
	return confenv.Name("Strategy", confenv.Strategies, int(s))
}

// IdleOrder says when memory that one stream freed may be used by another stream, or go
// back to the device.
type IdleOrder int

// The orders.
const (
	// OwnerOrder: when the stream that the memory was allocated on has passed where it was
	// at the free, and so have the streams that were recorded on the memory (RecordStream).
	OwnerOrder IdleOrder = iota
	// DeviceOrder: when all streams that the allocator knows have. One that never ends its
	// work keeps free memory where it is.
	DeviceOrder
)

// String returns the name: owner or device.
func (o IdleOrder) String() string {
	return confenv.Name("IdleOrder", confenv.IdleOrders, int(o))
}

// Divisions say how many sizes there are for blocks from a power of two to the
// next, by size: element i is for sizes from 1 MiB << i, the first also for
// what is smaller, the last for what is larger. Each is a power of two up to 2^20; 0 and
// 1 leave sizes alone. It is PyTorch's roundup_power2_divisions.
type Divisions [16]int

// SameDivisions returns n for all sizes.
func SameDivisions(n int) Divisions { return Divisions(sizeclass.SameDivisions(n)) }

// ParseDivisions reads what PyTorch takes: one power of two for all sizes, or
// [256:1,512:2,1024:4,>:8], where the first number of a pair is a size in MiB
// and the second is for sizes from there to its double; that of the first pair
// also for what is smaller, that of ">" for what is larger than in the last.
// Sizes that are not listed are left alone. It also reads "none", the zero Divisions. It
// fails with a *ConfigError.
func ParseDivisions(s string) (Divisions, error) {
	d, err := sizeclass.ParseDivisions(s)
	if err != nil {
		return Divisions{}, &ConfigError{Field: "divisions", Value: s, Reason: err.Error()}
	}
	return Divisions(d), nil
}

// String returns what ParseDivisions reads.
func (d Divisions) String() string { return sizeclass.Divisions(d).String() }

// Config sets up a Pool. The zero value is the host device with PyTorch's
// sizes and no limit. Sizes are in bytes. New takes fields that are zero from the
// environment (AllocConf), unless NoEnvironment is set.
//
// Limit is the bound to take first: an allocation that needs more fails. Fraction
// is the same bound for programs that do not know the device's size beforehand.
// SoftLimit fails nothing: above it, idle memory is used before more is reserved, with
// all backings. GarbageCollectionThreshold is for
// settings that come from PyTorch, whose meaning it has.
//
// OnOutOfMemory is the callback to take first: it is called when an allocation
// would fail otherwise. BeforeGrow is called more often, whenever the device is
// about to be asked, for programs that would rather free memory than reserve more.
// OnRelease only tells, for those who count what the device has.
type Config struct {
	// Driver is the device. nil: a new host device of the default capacity,
	// which Close closes. A Driver given here stays the caller's to close.
	Driver Driver

	// NoEnvironment has New read nothing from the environment. False: New takes fields
	// that are zero from AllocConf and the variables beside it.
	NoEnvironment bool

	// Limit bounds the bytes reserved from the device. 0: no limit.
	Limit int64
	// Fraction bounds them to a part of the device's total memory, in
	// (0, 1]. 0: no limit. With both, the smaller one holds.
	Fraction float64

	// SoftLimit is where reclaiming starts, in bytes reserved: beyond it,
	// idle memory serves other streams and pools or is given back before the
	// device is asked for more, even when the program then often has to ask
	// again. What is needed is reserved all the same, up to Limit. It acts before
	// growth alone; one of SetSoftLimit acts on frees, too. 0: none; reclaiming
	// starts at the most that was ever reserved.
	SoftLimit int64
	// TrimOldest is the order in which Trim, SetSoftLimit, Decay and an allocation
	// that the device refuses give free memory back: what has been free for longest
	// first. Of virtual memory that is whole chunks, and a row of them counts from
	// when the last of it was freed. False: the largest segments first; of virtual
	// memory stream by stream, and of each the longest rows first.
	TrimOldest bool
	// Decay is the time after which memory that nobody needed meanwhile goes
	// back to the device. It costs a goroutine, which ends with Close. It
	// waits for nothing: what streams at work may still use stays, and
	// segments do while any stream is at work. 0: never; idle memory is kept
	// until it is wanted elsewhere. Else at least 50 ms.
	Decay time.Duration

	// IdleOrder is when free memory may go to another stream or back to the device. Programs
	// that use memory on streams which they do not record, as PyTorch's may, take
	// DeviceOrder, which reserves a little more (docs/reliability.md). 0: OwnerOrder.
	IdleOrder IdleOrder

	// WaitTimeout bounds how long one call waits for work of the device: Sync,
	// CopyIn, CopyOut, Close, Trim, EmptyCache, Sleep, and an allocation that
	// memory has run out for. When it is over, the call fails with a *WaitError
	// that names the stream, and has changed nothing that the work may use: a
	// stream or pool that was to be closed is open. An allocation goes on to
	// look elsewhere, and its *OOMError matches the *WaitError when there is
	// nothing. The call can be made again. Waits then ask the device again and
	// again, up to a thousand times a second. It bounds the waits for streams of
	// the allocator, adopted ones included; a Driver's MemFree may wait for
	// work of others. The zeros that Close and Reset write for ZeroOnFree are
	// waited for as long as it takes. AllocContext and SyncContext bound
	// single calls. 0: calls wait as long as it takes.
	WaitTimeout time.Duration

	// GrowWait bounds how long an allocation waits for freed memory that streams still use,
	// before the pool reserves more than it ever did. A GPU may be a thousand kernels behind
	// the program, and what RecordStream keeps until then is a multiple of what is in use.
	// So is what streams at work have freed for themselves: with a GrowWait, free chunks of
	// virtual memory move to another stream once IdleOrder's streams have passed their free,
	// whatever their own stream does since, and that is waited for, too. Work is waited for
	// only where a stream has more to do behind it, so the device goes on meanwhile; after a
	// wait that took longer, growth goes on without some. Pools of less than 256 MiB do not
	// wait. A free of an eighth of the pool records an event. 0: allocations grow at once, and
	// only a stream that has passed all that it freed gives memory away.
	GrowWait time.Duration

	// SmallLimit is the largest block, after rounding, that comes from the
	// small pool. 0: 1 MiB.
	SmallLimit int64
	// SmallSegment is the size of the small pool's segments, a multiple of 512 and at
	// least SmallLimit. 0: 2 MiB.
	SmallSegment int64
	// LargeSegment is the size of the segments that serve requests below
	// LargeLimit, a multiple of 512 and at least LargeLimit. 0: 20 MiB.
	LargeSegment int64
	// LargeLimit is the size from which a request gets a segment of its own
	// size, rounded up to SegmentRounding. 0: 10 MiB.
	LargeLimit int64
	// SegmentRounding is the unit of segments for requests of LargeLimit
	// and more, a multiple of 512. 0: 2 MiB, the page of the GPU.
	SegmentRounding int64
	// MaxChunk is the size of the largest piece of physical memory that virtual memory consists
	// of, a power of two, from 2 MiB. Costs of the driver go by pieces, of which a large pool has larger
	// ones. With 2 MiB, the page of the GPU, all pieces have one size, as PyTorch's allocator
	// needs to map memory of another process. 0: 32 MiB.
	MaxChunk int64
	// MinSplit is the smallest rest that a large block is split for; less
	// is left in the block. 0: 1 MiB and 512 bytes, which is PyTorch's
	// "more than 1 MiB".
	MinSplit int64

	// MinBlock is the unit of blocks: sizes are rounded up to a multiple of
	// it, and addresses in a segment are multiples of it from its start. A
	// power of two, at most SmallLimit, that divides the sizes of segments.
	// With 256, which is the least, as CUDA aligns memory to that, addresses
	// are multiples of 256 and not of 512. 0: 512.
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
	// and 1. At most 64.
	GrowthFactor float64
	// InitialSize is reserved from the beginning, for the default stream;
	// other streams take it over while it is idle. It stays as what Reserve
	// reserves. At most Limit. 0: nothing.
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
	// lock-free reuse, in bytes; a single block may take up to half of
	// it. 0: 64 MiB. Negative: none, and small blocks are merged with
	// their neighbours at once, which makes placement depend on nothing but
	// the sequence of calls.
	MagazineBytes int64

	// Sanitize finds wrong uses of memory, in tests and while a fault is
	// looked for. Zero: nothing.
	Sanitize Sanitizers
	// OnCorruption is called for every block that Sanitize finds corrupted,
	// which the Logger is told of too. It is called with locks held and must
	// not use the allocator. nil: the calls that find it return it.
	OnCorruption func(*CorruptionError)
	// ZeroOnAlloc fills every block with zeros before it goes out, so that
	// its owner reads nothing that others left. ZeroOnFree does so before its
	// memory is used for anything else, or goes back to the device, by Close
	// and Sleep too, so that nobody reads what its owner left. Both fill the
	// whole block, with its slack, as work of its stream: it costs a Memset of
	// every block, and turns the lock-free path off. A captured stream's
	// blocks become zero whenever the graph runs
	// (ZeroOnAlloc), or after the capture (ZeroOnFree). An arena or a plan of a
	// Planner divides one block, whose parts are handed on as they are.
	// False: memory is handed on as it is, within the program.
	ZeroOnAlloc, ZeroOnFree bool

	// History records what the allocator does from the beginning, as StartHistory
	// does later. With SampleBytes 1 each leak has the Go stack that allocated it.
	// nil: nothing.
	History *History

	// OOMDump is a folder. The first allocation that runs out of memory writes three files
	// there before it returns: cupool-oom-TIME-PROCESS with .txt (the error and the statistics),
	// .pickle (a snapshot of all pools as of OOMError.Snapshot, for PyTorch's viewer and cupool view) and
	// .pb.gz (its profile, for go tool pprof). Files of more than 64 MiB are not written, and of a
	// folder's dumps the latest eight are kept, of all programs. No lock is held meanwhile. What
	// cannot be written is left out, and Logger is told. "": none.
	OOMDump string
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
	// use the allocator, but not close it: Close waits for the goroutine of a
	// Decay, which calls this, too.
	OnRelease func(released int64)

	// Logger gets what goes wrong where no error can be returned, and what is
	// rare: an allocation that had to reclaim memory, and StartHistory (Info), one
	// that met work which was late or ran out of memory (Warn), and memory that
	// went back to the device (Debug). But for corrupted memory, each message is
	// logged at most once a second for each pool, and says how many were left_out.
	// Its Handler is called with locks held and must not use the allocator. nil: none.
	Logger *slog.Logger

	classed bool              // sizes are rounded by classes, too
	classes sizeclass.Classes // of Divisions, Strategy and MinBlock
	found   []confenv.Setting // where settings came from, and those that mean nothing
	zeros   []string          // fields that ParseAllocConf has set to zero
}

// Sanitizers find wrong uses of device memory. They take memory and time, turn
// the lock-free path off, and keep the stacks of allocations and frees, at about a
// microsecond each. The zero value is off. Sizes are in bytes.
//
// A corrupted block is a *CorruptionError, which Config.OnCorruption and
// Config.Logger are told as soon as it is found. Free returns it when the work on
// the block is done by then, or with Wait; Check, EmptyCache and Close return
// every one once. The block is freed all the same. What a block is filled with is
// work of its stream, so that no other work is waited for or overtaken. Blocks
// that go out while their stream is captured get no patterns, and neither do the parts
// of a block that an arena or a plan of a Planner divides. docs/reliability.md lists what
// is not found.
type Sanitizers struct {
	// Canaries is the least number of bytes behind each block that are filled
	// with 0xCA, and that must be so when it is freed; up to 511 more make it a
	// multiple of 512. Check and Close look at live blocks, too. What is
	// written further behind, or in front of a block, is found in the canaries
	// of a neighbour, if at all. At most 1 MiB. 0: none.
	Canaries int64
	// Poison fills new blocks with 0xCD, so that results which use memory that
	// was never written look odd, and freed ones with 0xDB. Freed blocks are in
	// quarantine until they are reused and must still be so then, else they
	// were written after their free. It costs two Memsets and a copy to the
	// computer of every block.
	Poison bool
	// Quarantine is how many bytes of freed blocks of each stream of a pool are
	// kept from being reused, the latest ones. They count as pending. They are
	// given up before a request is refused, and by Trim and EmptyCache. 0: 64
	// MiB where another sanitizer is on, else none. Negative: none; blocks then
	// wait for the work on them only.
	Quarantine int64
	// Guard gives each block addresses of its own, with addresses that have no
	// memory in front and behind, and takes the memory away after Free, when
	// the work on the block is done: what touches such addresses is
	// ErrDeviceLost, CUDA_ERROR_ILLEGAL_ADDRESS on a GPU, and ends the device.
	// Blocks end where their memory does, so reads and writes from the next
	// multiple of MinBlock on fault; Canaries, which then get no room of their own,
	// find writes below it. In front of a block up to 2 MiB, the granularity of
	// the device, may be mapped. Each block takes a multiple of that, of which
	// statistics and Limit count only what the program can use. It needs a
	// Driver with VirtualMemory, else New fails with ErrNotSupported, and
	// replaces Backing, MaxSplit, GrowthFactor and InitialSize. Pools with
	// functions of their own for memory have no guards. There is no Sleep, and
	// Reserve keeps nothing.
	Guard bool
	// Wait has Free wait for the work on the block, so that it returns the
	// block's own damage, and a guarded block has no memory when Free returns.
	// A program whose work waits for something that it does after Free hangs.
	Wait bool
}

// The defaults, which are PyTorch's where it has such a setting.
const (
	defaultSmallLimit      = 1 << 20
	defaultSmallSegment    = 2 << 20
	defaultLargeSegment    = 20 << 20
	defaultLargeLimit      = 10 << 20
	defaultSegmentRounding = 2 << 20
	defaultMaxChunk        = 32 << 20
	defaultMinSplit        = 1<<20 + sizeclass.Quantum
	defaultMagazineBytes   = 64 << 20
	defaultNonSplitRest    = 20 << 20
	defaultQuarantine      = 64 << 20
	segregatedDivisions    = 8
)

const (
	maxCanaries     = 1 << 20
	maxGrowthFactor = 64
	leastChunk      = 2 << 20 // the page of the GPU
)

// withDefaults returns the Config with every zero field set, or a
// *ConfigError.
func (cfg Config) withDefaults() (Config, error) {
	for p, def := range map[*int64]int64{
		&cfg.SmallLimit: defaultSmallLimit, &cfg.SmallSegment: defaultSmallSegment, &cfg.LargeLimit: defaultLargeLimit,
		&cfg.LargeSegment: defaultLargeSegment, &cfg.SegmentRounding: defaultSegmentRounding, &cfg.MinSplit: defaultMinSplit,
		&cfg.MaxChunk: defaultMaxChunk, &cfg.MagazineBytes: defaultMagazineBytes, &cfg.MinBlock: sizeclass.Quantum,
	} {
		if *p == 0 {
			*p = def
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := cfg.validate(); err != nil {
		return cfg, err
	}
	var err error
	if cfg.History, err = cfg.History.completed(); err != nil {
		return cfg, err
	}
	if s := cfg.sanitizers(); s.Delays() && s.Quarantine == 0 {
		cfg.Sanitize.Quarantine = defaultQuarantine
	}
	if cfg.MaxSplit > 0 {
		cfg.Backing = BackingSegments
		if cfg.MaxNonSplitRounding == 0 {
			cfg.MaxNonSplitRounding = defaultNonSplitRest
		}
	}
	if cfg.Strategy == Segregated && cfg.Divisions == (Divisions{}) {
		cfg.Divisions = SameDivisions(segregatedDivisions)
	}
	cfg.classes, cfg.classed = sizeclass.NewClasses(sizeclass.Divisions(cfg.Divisions), cfg.MinBlock, cfg.Strategy == PowerOfTwo)
	return cfg, nil
}

// validate returns a *ConfigError for the first field that cannot be.
func (cfg *Config) validate() error {
	const q = sizeclass.Quantum
	bytes := func(n int64) string { return " (" + bytesize.Format(n) + ")" }
	segment := func(size int64) bool { return size > 0 && size%q == 0 && size <= sizeclass.MaxRequest }
	for _, f := range []struct {
		name   string
		value  any
		ok     bool
		reason string
	}{
		{"Driver", cfg.Driver, cfg.Driver == nil || !nilptr.Is(cfg.Driver), "must not be a nil pointer; nil alone means a device in the computer's memory"},
		{"Limit", cfg.Limit, cfg.Limit >= 0, "must not be negative; 0 means no limit"},
		{"SoftLimit", cfg.SoftLimit, cfg.SoftLimit >= 0, "must not be negative; 0 means none"},
		{"Decay", cfg.Decay, cfg.Decay >= 0 && (cfg.Decay == 0 || cfg.Decay >= decay.Min), "must be 0 (never) or at least " + decay.Min.String()},
		{"GrowWait", cfg.GrowWait, cfg.GrowWait >= 0, "must not be negative; 0 means none"},
		{"WaitTimeout", cfg.WaitTimeout, cfg.WaitTimeout >= 0, "must not be negative; 0 means no bound"},
		{"Fraction", cfg.Fraction, cfg.Fraction >= 0 && cfg.Fraction <= 1, "must be in (0, 1]; 0 means no limit"},
		{"SmallLimit", cfg.SmallLimit, cfg.SmallLimit > 0, "must be positive"},
		{"SmallSegment", cfg.SmallSegment, segment(cfg.SmallSegment) && cfg.SmallSegment >= cfg.SmallLimit, "must be a multiple of 512, below 2^61 and at least SmallLimit" + bytes(cfg.SmallLimit)},
		{"LargeLimit", cfg.LargeLimit, cfg.LargeLimit > 0, "must be positive"},
		{"LargeSegment", cfg.LargeSegment, segment(cfg.LargeSegment) && cfg.LargeSegment >= cfg.LargeLimit, "must be a multiple of 512, below 2^61 and at least LargeLimit" + bytes(cfg.LargeLimit)},
		{"SegmentRounding", cfg.SegmentRounding, segment(cfg.SegmentRounding), "must be a positive multiple of 512 below 2^61"},
		{"Backing", cfg.Backing, cfg.Backing >= BackingAuto && cfg.Backing <= BackingVMM, "must be BackingAuto, BackingSegments or BackingVMM"},
		{"Strategy", cfg.Strategy, cfg.Strategy >= BestFit && cfg.Strategy <= PowerOfTwo, "must be BestFit, FirstFit, Segregated or PowerOfTwo"},
		{"IdleOrder", cfg.IdleOrder, cfg.IdleOrder >= OwnerOrder && cfg.IdleOrder <= DeviceOrder, "must be OwnerOrder or DeviceOrder"},
		{"MinSplit", cfg.MinSplit, cfg.MinSplit >= min(q, cfg.MinBlock), "must be at least 512, or MinBlock where that is less"},
		{"MaxChunk", cfg.MaxChunk, cfg.MaxChunk >= leastChunk && cfg.MaxChunk&(cfg.MaxChunk-1) == 0, "must be a power of two, from 2 MiB"},
		{"MinBlock", cfg.MinBlock, cfg.minBlockOK(), "must be a power of two, from 256, which CUDA aligns memory to, to SmallLimit" + bytes(cfg.SmallLimit) + ", that divides SmallSegment" + bytes(cfg.SmallSegment) + ", LargeSegment" + bytes(cfg.LargeSegment) + " and SegmentRounding" + bytes(cfg.SegmentRounding)},
		{"MaxSplit", cfg.MaxSplit, cfg.MaxSplit == 0 || cfg.MaxSplit >= cfg.LargeSegment, "must be at least LargeSegment" + bytes(cfg.LargeSegment) + "; 0 means none"},
		{"MaxSplit", cfg.MaxSplit, cfg.MaxSplit == 0 || cfg.Backing != BackingVMM, "is for segments, not for Backing vmm, which splits and joins all blocks"},
		{"MaxNonSplitRounding", cfg.MaxNonSplitRounding, cfg.MaxNonSplitRounding >= 0 && (cfg.MaxSplit > 0 || cfg.MaxNonSplitRounding == 0), "must not be negative, and needs MaxSplit; 0 means 20 MiB"},
		{"Divisions", cfg.Divisions, sizeclass.Divisions(cfg.Divisions).Valid(), "must be powers of two up to 2^20; 0 means none"},
		{"Divisions", cfg.Divisions, cfg.Strategy != PowerOfTwo || cfg.Divisions == Divisions{}, "must not be set with Strategy power-of-two, which rounds by itself"},
		{"GrowthFactor", cfg.GrowthFactor, cfg.GrowthFactor == 0 || cfg.GrowthFactor >= 1 && cfg.GrowthFactor <= maxGrowthFactor, "must be 0 (fixed sizes) or from 1 to 64"},
		{"InitialSize", cfg.InitialSize, cfg.InitialSize >= 0 && cfg.InitialSize <= sizeclass.MaxRequest, "must not be negative, and below 2^61; 0 means nothing"},
		{"InitialSize", cfg.InitialSize, cfg.Limit == 0 || cfg.InitialSize <= cfg.Limit, "must not be larger than Limit" + bytes(cfg.Limit)},
		{"Sanitize.Canaries", cfg.Sanitize.Canaries, cfg.Sanitize.Canaries >= 0 && cfg.Sanitize.Canaries <= maxCanaries, "must be from 0 (none) to 1 MiB"},
		{"GarbageCollectionThreshold", cfg.GarbageCollectionThreshold, cfg.GarbageCollectionThreshold >= 0 && cfg.GarbageCollectionThreshold < 1, "must be in (0, 1); 0 means none"},
	} {
		if !f.ok {
			return &ConfigError{Field: f.name, Value: f.value, Reason: f.reason}
		}
	}
	return nil
}

// minBlockOK reports whether MinBlock is a unit for all segments.
func (cfg *Config) minBlockOK() bool {
	n := cfg.MinBlock
	return n >= sizeclass.Least && n&(n-1) == 0 &&
		(n <= sizeclass.Quantum || n <= cfg.SmallLimit && (cfg.SmallSegment|cfg.LargeSegment|cfg.SegmentRounding)&(n-1) == 0)
}

// limitOf returns the bytes that may be reserved on a device with a limit and a
// fraction, which are 0 for none, or MaxInt64.
func limitOf(d Driver, limit int64, fraction float64) (int64, error) {
	if limit <= 0 {
		limit = math.MaxInt64
	}
	if fraction > 0 {
		_, total, err := d.MemInfo()
		if err != nil {
			return 0, err
		}
		limit = min(limit, max(int64(math.Round(fraction*float64(total))), 1)) // 0 would be none
	}
	return limit, nil
}

// thresholdOf returns the bytes that a part of the limit comes to, or of the
// device's memory where the limit is MaxInt64; 0 for no part.
func thresholdOf(d Driver, limit int64, part float64) (int64, error) {
	if part == 0 {
		return 0, nil
	}
	if limit == math.MaxInt64 {
		var err error
		if _, limit, err = d.MemInfo(); err != nil {
			return 0, err
		}
	}
	return partOf(limit, part), nil
}

// partOf is thresholdOf a limit that is one, and a part that is more than 0.
func partOf(limit int64, part float64) int64 { return max(int64(part*float64(limit)), 1) }

// policy returns how the heaps of a pool work. noSplit gives every block a
// segment of its own.
func (cfg *Config) policy(noSplit bool) heap.Policy {
	p := heap.Policy{
		SmallLimit: cfg.SmallLimit, MagazineBytes: cfg.MagazineBytes, MinSplit: cfg.MinSplit, MinBlock: cfg.MinBlock,
		NoSplit: noSplit, FirstFit: cfg.Strategy == FirstFit, MaxSplit: cfg.MaxSplit,
		MaxNonSplitRounding: cfg.MaxNonSplitRounding, GrowthFactor: cfg.GrowthFactor, MaxChunk: cfg.MaxChunk,
	}
	if !noSplit && cfg.Strategy != FirstFit && cfg.MaxSplit == 0 && cfg.GrowthFactor == 0 {
		p.SharedSegment = cfg.LargeSegment
	}
	if s := cfg.sanitizers(); cfg.MagazineBytes >= 0 && !s.Any() {
		if cfg.Strategy != FirstFit {
			p.FastLimit = min(cfg.SmallLimit, block.FastLimit)
		}
		p.HomeLimit = cfg.MagazineBytes / 2
	}
	return p
}

// segmentSize returns the bytes to ask the device for when a block of
// rounded bytes has to be made. The sizes are PyTorch's.
func (cfg *Config) segmentSize(rounded int64) int64 {
	switch {
	case rounded <= cfg.SmallLimit && cfg.GrowthFactor != 1:
		return cfg.SmallSegment
	case rounded < cfg.LargeLimit && cfg.GrowthFactor != 1:
		return cfg.LargeSegment
	default:
		return sizeclass.RoundTo(rounded, cfg.SegmentRounding)
	}
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

// AllocConf is the variable of the environment with settings in PyTorch's
// syntax: "KEY:VALUE,KEY:VALUE,...". Blanks are ignored. The keys are fields of Config by
// their names, as limit, max_split or wait_timeout, with sizes such as 512MiB and
// times such as 30s. A variable of a key's name sets that alone: CUPOOL_LIMIT,
// CUPOOL_WAIT_TIMEOUT.
//
// PyTorch's keys mean what they mean there: max_split_size_mb,
// max_non_split_rounding_mb, large_segment_size_mb, roundup_power2_divisions,
// garbage_collection_threshold, per_process_memory_fraction, expandable_segments (True is
// BackingVMM, False BackingSegments). Those that mean nothing here are taken, and
// Config.Logger is told: pinned_*, backend:native, release_lock_on_cudamalloc,
// graph_capture_record_stream_reuse, and max_split_size_mb beside expandable_segments:True.
const AllocConf = "CUPOOL_ALLOC_CONF"

// Setting is one field of a Config that is in effect.
type Setting struct {
	Field  string // of Config; empty for a setting that means nothing
	Key    string // that sets it in CUPOOL_ALLOC_CONF
	Value  string // as CUPOOL_ALLOC_CONF has it
	Source string // SourceDefault, SourceProgram or a variable of the environment
	// Unused is what the environment says where the program says something
	// else, as VARIABLE=value, or why the setting means nothing; else empty.
	Unused string
}

// The sources of settings, beside variables of the environment.
const (
	SourceDefault = confenv.Default // "default"
	SourceProgram = confenv.Program // "program"
)

// ConfigFromEnv fills in the fields of cfg that are zero from the variables of
// the environment, AllocConf and the others, as New does by itself. What the program has
// set stays: what it takes from its own flags comes before the environment. So do fields
// that ParseAllocConf has set to zero. It also returns every setting in effect and where it
// came from, in a fixed order, for programs that show them, and behind these the ones that
// mean nothing. A variable that is empty counts as not set. The Config that it returns has
// NoEnvironment set: New takes it as it is.
//
// It fails with a *ConfigError that names the key and what is allowed: for an
// unknown key, with the nearest one, for a value that is not allowed, also together with
// others, and for two values for the same field.
func ConfigFromEnv(cfg Config) (Config, []Setting, error) {
	merged, found, err := settings.Environ(cfg, cfg.zeros...)
	if err != nil {
		return Config{}, nil, err
	}
	merged.NoEnvironment, merged.found = true, append(slices.Clone(found), cfg.found...)
	return merged, settingsOf(found), nil
}

// fromEnviron is ConfigFromEnv where the program wants that, for New.
func (cfg Config) fromEnviron() (Config, error) {
	if cfg.NoEnvironment {
		return cfg, nil
	}
	merged, _, err := ConfigFromEnv(cfg)
	merged.NoEnvironment = false
	return merged, err
}

func settingsOf(found []confenv.Setting) []Setting {
	list := make([]Setting, len(found))
	for i, s := range found {
		list[i] = Setting(s)
	}
	return list
}

// Settings returns every setting that is in force, in a fixed order, with where it came
// from, and behind these the ones that mean nothing. One that Configure or SetSoftLimit has
// changed is the program's, or the default where it is that. Those of a private pool are its
// allocator's but for what PoolConfig says.
func (c *Pool) Settings() []Setting {
	if c.isNone() {
		return nil
	}
	cfg, found := c.Config(), c.dev.root.cfg.found
	inUse := cfg.Backing
	cfg.Backing = c.cfg.Backing
	list := settings.Now(&cfg, found)
	for i, s := range list {
		if s.Field == "Backing" { // which auto chose
			list[i].Value = inUse.String()
		}
	}
	return settingsOf(append(list, meaningless(found)...))
}

// meaningless returns the settings that mean nothing.
func meaningless(found []confenv.Setting) []confenv.Setting {
	return slices.DeleteFunc(slices.Clone(found), func(s confenv.Setting) bool { return s.Field != "" })
}

// logSettings tells of settings that mean nothing, and of variables of the environment
// that nobody knows.
func (c *Pool) logSettings() {
	var idle []string
	for _, s := range meaningless(c.cfg.found) {
		idle = append(idle, s.Key+":"+s.Value+" ("+s.Unused+")")
	}
	if len(idle) > 0 {
		c.log.Info("settings mean nothing here", "settings", strings.Join(idle, ", "))
	}
	if c.cfg.NoEnvironment {
		return
	}
	if names, nearest := settings.Unknown(os.Environ()); len(names) > 0 {
		c.log.Warn("unknown variables of the environment", "variables", strings.Join(names, ", "), "nearest", strings.Join(nearest, ", "))
	}
}

// ParseAllocConf reads what AllocConf may hold, for programs that take it from
// a flag, and returns a Config with these fields. It fails as ConfigFromEnv
// does.
func ParseAllocConf(conf string) (Config, error) {
	cfg, zeros, list, err := settings.Parse(conf)
	cfg.found, cfg.zeros = list, zeros
	return cfg, err
}

var settings = confenv.Table[Config]{
	Variable: AllocConf, Prefix: "CUPOOL_", Keys: confenv.Keys, Idle: confenv.Torch, Others: confenv.Others, Complete: Config.withDefaults,
}
