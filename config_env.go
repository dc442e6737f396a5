package cupool

import (
	"time"

	"github.com/cupool/cupool/internal/confenv"
	"github.com/cupool/cupool/internal/decay"
)

// Configuration from the environment, for programs that want it: New reads
// none, so that a library's behaviour does not depend on where it runs.

// AllocConf is the variable of the environment with settings in PyTorch's
// syntax: "KEY:VALUE,KEY:VALUE,...". Blanks are ignored. Keys that PyTorch has
// too mean the same: max_split_size_mb, max_non_split_rounding_mb,
// large_segment_size_mb, roundup_power2_divisions,
// garbage_collection_threshold, per_process_memory_fraction,
// expandable_segments (True is BackingVMM, False BackingSegments). The others
// are fields of Config with sizes such as 512MiB. CUPOOL_MAX_SIZE,
// CUPOOL_INITIAL_SIZE and CUPOOL_GROWTH_FACTOR say the same as the keys
// max_size, initial_size and growth_factor.
const AllocConf = "CUPOOL_ALLOC_CONF"

// Setting is one field of a Config that is in effect.
type Setting struct {
	Field  string // of Config
	Key    string // that sets it in CUPOOL_ALLOC_CONF
	Value  string // as CUPOOL_ALLOC_CONF has it
	Source string // SourceDefault, SourceProgram or a variable of the environment
	// Unused is what the environment says where the program says something
	// else, as VARIABLE=value; else empty.
	Unused string
}

// The sources of settings, beside variables of the environment.
const (
	SourceDefault = confenv.Default
	SourceProgram = confenv.Program
)

// ConfigFromEnv fills in the fields of cfg that are zero from the variables of
// the environment, AllocConf and the others. What the program has set stays:
// what it takes from its own flags comes before the environment. It also
// returns every setting in effect and where it came from, in a fixed order. A
// variable that is empty counts as not set.
//
// It fails with a *ConfigError that names the key and what is allowed: for an
// unknown key, for a value that is not allowed, also together with others, and
// for two values for the same field.
func ConfigFromEnv(cfg Config) (Config, []Setting, error) {
	merged, found, err := settings.Environ(cfg)
	if err != nil {
		return Config{}, nil, err
	}
	list := make([]Setting, len(found))
	for i, s := range found {
		list[i] = Setting(s)
	}
	return merged, list, nil
}

// ParseAllocConf reads what AllocConf may hold, for programs that take it from
// a flag, and returns a Config with these fields. It fails as ConfigFromEnv
// does.
func ParseAllocConf(conf string) (Config, error) { return settings.Parse(conf) }

// settings are all keys. Names of PyTorch's options have PyTorch's meaning.
var settings = confenv.Table[Config]{Variable: AllocConf, Complete: Config.withDefaults, Keys: []confenv.Key[Config]{
	confenv.NewKey("Limit", "max_size", confenv.Bytes(func(c *Config) *int64 { return &c.Limit })).Also("CUPOOL_MAX_SIZE"),
	confenv.NewKey("Fraction", "per_process_memory_fraction", confenv.Number("a number in (0, 1]", func(c *Config) *float64 { return &c.Fraction })),
	confenv.NewKey("SoftLimit", "soft_limit", confenv.Bytes(func(c *Config) *int64 { return &c.SoftLimit })),
	confenv.NewKey("Decay", "decay", confenv.Duration("a duration such as 10s, of at least "+decay.Min.String(), func(c *Config) *time.Duration { return &c.Decay })),
	confenv.NewKey("InitialSize", "initial_size", confenv.Bytes(func(c *Config) *int64 { return &c.InitialSize })).Also("CUPOOL_INITIAL_SIZE"),
	confenv.NewKey("GrowthFactor", "growth_factor", confenv.Number("0 (fixed sizes), 1 (as requested) or a number from 1 to 64", func(c *Config) *float64 { return &c.GrowthFactor })).Also("CUPOOL_GROWTH_FACTOR"),
	confenv.NewKey("GarbageCollectionThreshold", "garbage_collection_threshold", confenv.Number("a number in (0, 1)", func(c *Config) *float64 { return &c.GarbageCollectionThreshold })),
	confenv.NewKey("Backing", "backing", confenv.Names(backingNames[:], func(c *Config) *Backing { return &c.Backing })),
	confenv.NewKey("Backing", "expandable_segments", confenv.Bool(func(c *Config) bool { return c.Backing == BackingVMM }, expandable)),
	confenv.NewKey("Strategy", "strategy", confenv.Names(strategyNames[:], func(c *Config) *Strategy { return &c.Strategy })),
	confenv.NewKey("Divisions", "roundup_power2_divisions", divisionsForm),
	confenv.NewKey("MinBlock", "min_block", confenv.Bytes(func(c *Config) *int64 { return &c.MinBlock })),
	confenv.NewKey("MinSplit", "min_split", confenv.Bytes(func(c *Config) *int64 { return &c.MinSplit })),
	confenv.NewKey("MaxSplit", "max_split_size_mb", confenv.Mebibytes(func(c *Config) *int64 { return &c.MaxSplit })),
	confenv.NewKey("MaxNonSplitRounding", "max_non_split_rounding_mb", confenv.Mebibytes(func(c *Config) *int64 { return &c.MaxNonSplitRounding })),
	confenv.NewKey("SmallLimit", "small_limit", confenv.Bytes(func(c *Config) *int64 { return &c.SmallLimit })),
	confenv.NewKey("SmallSegment", "small_segment", confenv.Bytes(func(c *Config) *int64 { return &c.SmallSegment })),
	confenv.NewKey("LargeSegment", "large_segment_size_mb", confenv.Mebibytes(func(c *Config) *int64 { return &c.LargeSegment })),
	confenv.NewKey("LargeLimit", "large_limit", confenv.Bytes(func(c *Config) *int64 { return &c.LargeLimit })),
	confenv.NewKey("SegmentRounding", "segment_rounding", confenv.Bytes(func(c *Config) *int64 { return &c.SegmentRounding })),
	confenv.NewKey("MagazineBytes", "magazine_bytes", confenv.BytesOrNone(func(c *Config) *int64 { return &c.MagazineBytes })),
	confenv.NewKey("Sanitize.Canaries", "sanitize_canaries", confenv.Bytes(func(c *Config) *int64 { return &c.Sanitize.Canaries })),
	confenv.NewKey("Sanitize.Poison", "sanitize_poison", confenv.Bool(func(c *Config) bool { return c.Sanitize.Poison }, func(c *Config, on bool) { c.Sanitize.Poison = on })),
	confenv.NewKey("Sanitize.Quarantine", "sanitize_quarantine", confenv.BytesOrNone(func(c *Config) *int64 { return &c.Sanitize.Quarantine })),
	confenv.NewKey("Sanitize.Guard", "sanitize_guard", confenv.Bool(func(c *Config) bool { return c.Sanitize.Guard }, func(c *Config, on bool) { c.Sanitize.Guard = on })),
	confenv.NewKey("Sanitize.Wait", "sanitize_wait", confenv.Bool(func(c *Config) bool { return c.Sanitize.Wait }, func(c *Config, on bool) { c.Sanitize.Wait = on })),
	confenv.NewKey("ZeroOnAlloc", "zero_on_alloc", confenv.Bool(func(c *Config) bool { return c.ZeroOnAlloc }, func(c *Config, on bool) { c.ZeroOnAlloc = on })),
	confenv.NewKey("ZeroOnFree", "zero_on_free", confenv.Bool(func(c *Config) bool { return c.ZeroOnFree }, func(c *Config, on bool) { c.ZeroOnFree = on })),
	confenv.NewKey("RecordStacks", "record_stacks", confenv.Bool(func(c *Config) bool { return c.RecordStacks }, func(c *Config, on bool) { c.RecordStacks = on })),
}}

// expandable is PyTorch's name for virtual memory.
func expandable(c *Config, on bool) {
	if c.Backing = BackingSegments; on {
		c.Backing = BackingVMM
	}
}

var divisionsForm = confenv.Form[Config]{
	Allowed: "a power of two, or a list such as [256:1,512:2,1024:4,>:8]",
	IsSet:   func(c *Config) bool { return c.Divisions != Divisions{} },
	Format:  func(c *Config) string { return c.Divisions.String() },
	Parse: func(c *Config, text string) (ok bool) {
		var err error
		c.Divisions, err = ParseDivisions(text)
		return err == nil
	},
}
