package cupool

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cupool/cupool/internal/block"
)

// The fields of Config that have a text form: what CUPOOL_ALLOC_CONF may say
// of them, and how their values are printed.

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
	SourceDefault = "default"
	SourceProgram = "program"
)

// setting is one key.
type setting struct {
	field, key string
	variable   string // of the environment, beside CUPOOL_ALLOC_CONF; or none
	form
}

// form is how a field is written.
type form struct {
	allowed string // for errors
	isSet   func(*Config) bool
	format  func(*Config) string
	parse   func(*Config, string) bool // false: not allowed
}

// settings are all keys. A field's first is the one that it is printed with.
// Names of PyTorch's options have PyTorch's meaning.
var settings = []setting{
	{"Limit", "max_size", "CUPOOL_MAX_SIZE", bytesForm(func(c *Config) *int64 { return &c.Limit })},
	{"Fraction", "per_process_memory_fraction", "", numberForm("a number in (0, 1]", func(c *Config) *float64 { return &c.Fraction })},
	{"SoftLimit", "soft_limit", "", bytesForm(func(c *Config) *int64 { return &c.SoftLimit })},
	{"Decay", "decay", "", decayForm},
	{"InitialSize", "initial_size", "CUPOOL_INITIAL_SIZE", bytesForm(func(c *Config) *int64 { return &c.InitialSize })},
	{"GrowthFactor", "growth_factor", "CUPOOL_GROWTH_FACTOR", numberForm("0 (fixed sizes), 1 (as requested) or a number from 1 to 64", func(c *Config) *float64 { return &c.GrowthFactor })},
	{"GarbageCollectionThreshold", "garbage_collection_threshold", "", numberForm("a number in (0, 1)", func(c *Config) *float64 { return &c.GarbageCollectionThreshold })},
	{"Backing", "backing", "", namesForm(backingNames[:], func(c *Config) *Backing { return &c.Backing })},
	{"Backing", "expandable_segments", "", expandableForm},
	{"Strategy", "strategy", "", namesForm(strategyNames[:], func(c *Config) *Strategy { return &c.Strategy })},
	{"Divisions", "roundup_power2_divisions", "", divisionsForm},
	{"MinBlock", "min_block", "", bytesForm(func(c *Config) *int64 { return &c.MinBlock })},
	{"MinSplit", "min_split", "", bytesForm(func(c *Config) *int64 { return &c.MinSplit })},
	{"MaxSplit", "max_split_size_mb", "", mebibytesForm(func(c *Config) *int64 { return &c.MaxSplit })},
	{"MaxNonSplitRounding", "max_non_split_rounding_mb", "", mebibytesForm(func(c *Config) *int64 { return &c.MaxNonSplitRounding })},
	{"SmallLimit", "small_limit", "", bytesForm(func(c *Config) *int64 { return &c.SmallLimit })},
	{"SmallSegment", "small_segment", "", bytesForm(func(c *Config) *int64 { return &c.SmallSegment })},
	{"LargeSegment", "large_segment_size_mb", "", mebibytesForm(func(c *Config) *int64 { return &c.LargeSegment })},
	{"LargeLimit", "large_limit", "", bytesForm(func(c *Config) *int64 { return &c.LargeLimit })},
	{"SegmentRounding", "segment_rounding", "", bytesForm(func(c *Config) *int64 { return &c.SegmentRounding })},
	{"MagazineBytes", "magazine_bytes", "", magazineForm},
	{"RecordStacks", "record_stacks", "", boolForm(func(c *Config) bool { return c.RecordStacks }, func(c *Config, on bool) { c.RecordStacks = on })},
}

// settingOf returns the setting of a key, or nil.
func settingOf(key string) *setting {
	if i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key }); i >= 0 {
		return &settings[i]
	}
	return nil
}

// keysText lists the keys for errors.
func keysText() string {
	var keys []string
	for _, s := range settings {
		keys = append(keys, s.key)
	}
	slices.Sort(keys)
	return strings.Join(keys, ", ")
}

func bytesForm(at func(*Config) *int64) form {
	return form{
		"a size such as 512MiB or 2G", func(c *Config) bool { return *at(c) != 0 },
		func(c *Config) string { return block.FormatBytes(*at(c)) },
		func(c *Config, text string) (ok bool) {
			n, err := ParseBytes(text)
			*at(c) = n
			return err == nil
		},
	}
}

func mebibytesForm(at func(*Config) *int64) form {
	const most = 1 << 40 // MiB
	f := bytesForm(at)
	f.allowed = "a whole number of MiB, at least 1"
	f.format = func(c *Config) string { return strconv.FormatFloat(float64(*at(c))/(1<<20), 'f', -1, 64) }
	f.parse = func(c *Config, text string) bool {
		n, err := strconv.ParseInt(text, 10, 64)
		*at(c) = n << 20
		return err == nil && n > 0 && n < most
	}
	return f
}

func numberForm(allowed string, at func(*Config) *float64) form {
	return form{
		allowed, func(c *Config) bool { return *at(c) != 0 },
		func(c *Config) string { return strconv.FormatFloat(*at(c), 'g', -1, 64) },
		func(c *Config, text string) bool {
			n, err := strconv.ParseFloat(text, 64)
			*at(c) = n
			return err == nil
		},
	}
}

func namesForm[T interface {
	~int
	fmt.Stringer
}](names []string, at func(*Config) *T) form {
	return form{
		"one of " + strings.Join(names, ", "), func(c *Config) bool { return *at(c) != 0 },
		func(c *Config) string { return (*at(c)).String() },
		func(c *Config, text string) bool {
			i := slices.Index(names, text)
			*at(c) = T(i)
			return i >= 0
		},
	}
}

func boolForm(get func(*Config) bool, set func(*Config, bool)) form {
	return form{
		"True or False", get,
		func(c *Config) string {
			if get(c) {
				return "True"
			}
			return "False"
		},
		func(c *Config, text string) bool {
			set(c, text == "True")
			return text == "True" || text == "False" // exactly, as PyTorch has it
		},
	}
}

// expandableForm is PyTorch's name for virtual memory.
var expandableForm = boolForm(
	func(c *Config) bool { return c.Backing == BackingVMM },
	func(c *Config, on bool) {
		if c.Backing = BackingSegments; on {
			c.Backing = BackingVMM
		}
	})

var divisionsForm = form{
	"a power of two, or a list such as [256:1,512:2,1024:4,>:8]", func(c *Config) bool { return c.Divisions != Divisions{} },
	func(c *Config) string { return c.Divisions.String() },
	func(c *Config, text string) (ok bool) {
		var err error
		c.Divisions, err = ParseDivisions(text)
		return err == nil
	},
}

var decayForm = form{
	"a duration such as 10s, of at least " + minDecay.String(), func(c *Config) bool { return c.Decay != 0 },
	func(c *Config) string { return c.Decay.String() },
	func(c *Config, text string) bool {
		var err error
		c.Decay, err = time.ParseDuration(text)
		return err == nil
	},
}

// magazineForm is a size, or none.
var magazineForm = func() form {
	f := bytesForm(func(c *Config) *int64 { return &c.MagazineBytes })
	number := f
	f.allowed += `, or "none"`
	f.format = func(c *Config) string {
		if c.MagazineBytes < 0 {
			return "none"
		}
		return number.format(c)
	}
	f.parse = func(c *Config, text string) bool {
		if text == "none" {
			c.MagazineBytes = -1
			return true
		}
		return number.parse(c, text)
	}
	return f
}()
