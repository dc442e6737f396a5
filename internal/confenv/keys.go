package confenv

import "github.com/cupool/cupool/internal/sizeclass"

// The names of the constants of cupool's types, from 0 on.
var (
	Backings   = []string{"auto", "segments", "vmm"}
	IdleOrders = []string{"owner", "device"}
	Strategies = []string{"best-fit", "first-fit", "segregated", "power-of-two"}
)

const segments, virtual = 1, 2 // indexes in Backings

// Keys are the keys of cupool.Config. Names of PyTorch's options have PyTorch's
// meaning. A field's key by its own name is its first.
var Keys = []Key{
	{"Limit", "limit", Bytes},
	{"Fraction", "fraction", Number("a number in (0, 1]")},
	{"Fraction", "per_process_memory_fraction", Number("a number in (0, 1]")},
	{"SoftLimit", "soft_limit", Bytes},
	{"TrimOldest", "trim_oldest", Bool},
	{"Decay", "decay", Duration},
	{"InitialSize", "initial_size", Bytes},
	{"GrowthFactor", "growth_factor", Number("0 (fixed sizes), 1 (as requested) or a number from 1 to 64")},
	{"GarbageCollectionThreshold", "garbage_collection_threshold", Number("a number in (0, 1)")},
	{"Backing", "backing", Names(Backings)},
	{"Backing", "expandable_segments", Switch(virtual, segments)},
	{"Strategy", "strategy", Names(Strategies)},
	{"IdleOrder", "idle_order", Names(IdleOrders)},
	{"Divisions", "divisions", Parsed("a power of two, or a list such as [256:1,512:2,1024:4,>:8]", sizeclass.ParseDivisions)},
	{"Divisions", "roundup_power2_divisions", Parsed("a power of two, or a list such as [256:1,512:2,1024:4,>:8]", sizeclass.ParseDivisions)},
	{"MinBlock", "min_block", Bytes},
	{"MinSplit", "min_split", Bytes},
	{"MaxSplit", "max_split", Bytes},
	{"MaxSplit", "max_split_size_mb", Mebibytes},
	{"MaxNonSplitRounding", "max_non_split_rounding", Bytes},
	{"MaxNonSplitRounding", "max_non_split_rounding_mb", Mebibytes},
	{"SmallLimit", "small_limit", Bytes},
	{"SmallSegment", "small_segment", Bytes},
	{"LargeSegment", "large_segment", Bytes},
	{"LargeSegment", "large_segment_size_mb", Mebibytes},
	{"LargeLimit", "large_limit", Bytes},
	{"SegmentRounding", "segment_rounding", Bytes},
	{"MaxChunk", "max_chunk", Bytes},
	{"MagazineBytes", "magazine_bytes", BytesOrNone},
	{"Sanitize.Canaries", "sanitize_canaries", Bytes},
	{"Sanitize.Poison", "sanitize_poison", Bool},
	{"Sanitize.Quarantine", "sanitize_quarantine", BytesOrNone},
	{"Sanitize.Guard", "sanitize_guard", Bool},
	{"Sanitize.Wait", "sanitize_wait", Bool},
	{"ZeroOnAlloc", "zero_on_alloc", Bool},
	{"ZeroOnFree", "zero_on_free", Bool},
	{"GrowWait", "grow_wait", Duration},
	{"WaitTimeout", "wait_timeout", Duration},
	{"OOMDump", "oom_dump", Folder},
	{"History.Events", "history_events", Count},
	{"History.SampleBytes", "history_sample_bytes", Bytes},
}

// Torch are the options of PyTorch that mean nothing to cupool. Where PyTorch takes two that
// cupool has to choose from, virtual memory comes before splits of segments.
var Torch = []Idle{
	{Name: "backend", Value: "native", Reason: "cupool is the backend; CUDA's own pools are package native"},
	{Name: "pinned_*", Reason: "memory of the computer is not cupool's"},
	{Name: "use_cuda_host_register", Reason: "memory of the computer is not cupool's"},
	{Name: "release_lock_on_cudamalloc", Reason: "no lock that others wait for is held while the device is asked"},
	{Name: "graph_capture_record_stream_reuse", Reason: "memory that other streams used waits for the end of a capture"},
	{Name: "max_split_size_mb", Beside: "expandable_segments:True", Reason: "expandable_segments:True splits and joins all blocks"},
	{Name: "max_non_split_rounding_mb", Beside: "expandable_segments:True", Reason: "expandable_segments:True splits and joins all blocks"},
}

// Others are what variables of the environment begin with, behind CUPOOL_, that have other
// uses than settings of an allocator.
var Others = []string{
	"BINARIES", "CACHE", "DEBUG_", "DEVICE", "DIST_", "GOMAXPROCS", "GPU_", "INCLUDE", "LIB", "MUTANT", "NCCL_", "PROGRAM", "RANDOM", "SEED", "SHOTS", "TEST", "TORCH_",
}
