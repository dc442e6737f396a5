package cupool_test

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// Each bad field names itself.
func TestConfigErrors(t *testing.T) {
	for field, bad := range map[string][]cupool.Config{
		"Limit":                      {{Limit: -1}},
		"SoftLimit":                  {{SoftLimit: -1}},
		"Decay":                      {{Decay: -1}, {Decay: time.Millisecond}},
		"Fraction":                   {{Fraction: -0.1}, {Fraction: 1.1}, {Fraction: math.NaN()}, {Fraction: math.Inf(1)}},
		"SmallLimit":                 {{SmallLimit: -1}},
		"SmallSegment":               {{SmallSegment: -512}, {SmallSegment: 1<<20 - 512}, {SmallSegment: 2<<20 + 1}, {SmallSegment: 1 << 61}, {SmallLimit: 4 << 20}},
		"LargeLimit":                 {{LargeLimit: -1}},
		"LargeSegment":               {{LargeSegment: -512}, {LargeSegment: 10<<20 - 512}, {LargeSegment: 20<<20 + 8}, {LargeSegment: math.MaxInt64 &^ 511}, {LargeLimit: 40 << 20}},
		"SegmentRounding":            {{SegmentRounding: -512}, {SegmentRounding: 1000}, {SegmentRounding: math.MaxInt64 &^ 511}},
		"MaxChunk":                   {{MaxChunk: -1}, {MaxChunk: 1}, {MaxChunk: 1 << 20}, {MaxChunk: 3 << 20}, {MaxChunk: math.MinInt64}},
		"MinSplit":                   {{MinSplit: -1}, {MinSplit: 511}, {MinSplit: 255, MinBlock: 256}},
		"Backing":                    {{Backing: -1}, {Backing: cupool.BackingVMM + 1}},
		"IdleOrder":                  {{IdleOrder: -1}, {IdleOrder: cupool.DeviceOrder + 1}},
		"Strategy":                   {{Strategy: -1}, {Strategy: cupool.PowerOfTwo + 1}},
		"MinBlock":                   {{MinBlock: -512}, {MinBlock: 128}, {MinBlock: 1}, {MinBlock: 384}, {MinBlock: 1536}, {MinBlock: 2 << 20}, {MinBlock: 4096, SegmentRounding: 1024}},
		"MaxSplit":                   {{MaxSplit: -1}, {MaxSplit: 20<<20 - 1}, {MaxSplit: 1 << 30, Backing: cupool.BackingVMM}},
		"MaxNonSplitRounding":        {{MaxNonSplitRounding: 1}, {MaxNonSplitRounding: -1, MaxSplit: 1 << 30}},
		"Divisions":                  {{Divisions: cupool.SameDivisions(3)}, {Divisions: cupool.SameDivisions(-2)}, {Divisions: cupool.SameDivisions(1 << 21)}, {Divisions: cupool.SameDivisions(2), Strategy: cupool.PowerOfTwo}},
		"GrowthFactor":               {{GrowthFactor: 0.5}, {GrowthFactor: -1}, {GrowthFactor: 65}, {GrowthFactor: math.NaN()}, {GrowthFactor: math.Inf(1)}},
		"InitialSize":                {{InitialSize: -1}, {InitialSize: math.MaxInt64}, {InitialSize: 2, Limit: 1}},
		"GarbageCollectionThreshold": {{GarbageCollectionThreshold: -0.1}, {GarbageCollectionThreshold: 1}, {GarbageCollectionThreshold: math.NaN()}},
	} {
		for i, cfg := range bad {
			t.Run(field+"/"+strconv.Itoa(i), func(t *testing.T) {
				cfg.Driver = pooltest.NewDriver(1 << 30)
				c, err := cupool.New(cfg)
				require.Nil(t, c)
				require.ErrorIs(t, err, cupool.ErrInvalidConfig)
				var ce *cupool.ConfigError
				require.ErrorAs(t, err, &ce)
				require.Equal(t, field, ce.Field)
				require.ErrorContains(t, err, "invalid configuration: "+field+" = ")
				require.NotEmpty(t, ce.Reason)
			})
		}
	}
}

// A nil pointer is no Driver, though it is not nil.
func TestDriverOfNothing(t *testing.T) {
	_, err := cupool.New(cupool.Config{Driver: (*simdev.Device)(nil)})
	var ce *cupool.ConfigError
	require.ErrorAs(t, err, &ce)
	require.Equal(t, "Driver", ce.Field)
	require.ErrorContains(t, err, "nil pointer")
}

func TestConfigExtremes(t *testing.T) {
	for name, cfg := range map[string]cupool.Config{
		"zero":               {},
		"one byte":           {Limit: 1},
		"smallest":           {SmallLimit: 1, SmallSegment: 512, LargeLimit: 1, LargeSegment: 512, SegmentRounding: 512, MinSplit: 512},
		"smallest blocks":    {SmallLimit: 1, SmallSegment: 512, LargeLimit: 1, LargeSegment: 512, SegmentRounding: 512, MinSplit: 256, MinBlock: 256},
		"equal limits":       {LargeLimit: 20 << 20, LargeSegment: 20 << 20},
		"everything small":   {SmallLimit: 1 << 30, SmallSegment: 1 << 30},
		"huge rounding":      {SegmentRounding: 1 << 50},
		"largest rounding":   {SegmentRounding: 1<<61 - 512},
		"largest segments":   {LargeSegment: 1<<61 - 512, SmallSegment: 1<<61 - 512},
		"never split":        {MinSplit: math.MaxInt64},
		"a block's magazine": {MagazineBytes: 1},
		"no magazines":       {MagazineBytes: math.MinInt64},
		"small fraction":     {Fraction: 1e-12},
	} {
		t.Run(name, func(t *testing.T) {
			d := pooltest.NewDriver(1 << 30)
			cfg.Driver = d
			c := pooltest.Open(t, cfg)
			for _, size := range []int64{1, 512, 1 << 20, 3 << 20, 64 << 20, 1 << 60, 1<<61 - 1} {
				b, err := c.Alloc(size, nil)
				if err != nil {
					require.ErrorIs(t, err, cupool.ErrOutOfMemory)
				}
				require.NoError(t, c.Check())
				require.NoError(t, c.Free(b))
			}
			if cfg.Limit+int64(cfg.Fraction*1e9) > 0 {
				require.LessOrEqual(t, c.Stats().All.ReservedBytes.Peak, int64(512))
			}
			require.NoError(t, c.Close())
		})
	}
}

// TestSettingsAreRead: what Settings says of a setting is what AllocConf may have.
func TestSettingsAreRead(t *testing.T) {
	for _, cfg := range []cupool.Config{{}, {Strategy: cupool.Segregated}, {Strategy: cupool.PowerOfTwo}, {Divisions: cupool.Divisions{1: 4}, MagazineBytes: -1, Decay: time.Second}} {
		cfg.Driver = simdev.New(simdev.Config{})
		c := pooltest.Open(t, cfg)
		var conf []string
		for _, s := range c.Settings() {
			conf = append(conf, s.Key+":"+s.Value)
		}
		got, err := cupool.ParseAllocConf(strings.Join(conf, ","))
		require.NoError(t, err)
		require.Equal(t, c.Config().Divisions.String(), got.Divisions.String())
		require.NoError(t, c.Configure(strings.Join(conf, ",")))
		require.NoError(t, c.Close())
	}
}

// TestLargestInitialSize: what can be asked for is no mistake, though no device has it.
func TestLargestInitialSize(t *testing.T) {
	_, err := cupool.New(cupool.Config{Driver: pooltest.NewDriver(1 << 30), InitialSize: 1<<61 - 1})
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
}

func TestFractionNeedsTheDevicesSize(t *testing.T) {
	d := pooltest.FailingInfo()
	_, err := cupool.New(cupool.Config{Driver: d, Fraction: 0.5})
	require.ErrorContains(t, err, "no luck")
	_, err = cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err, "without one, nobody asks")
}

func TestBacking(t *testing.T) {
	for b, want := range map[cupool.Backing]string{cupool.BackingAuto: "auto", cupool.BackingSegments: "segments", cupool.BackingVMM: "vmm", 7: "Backing(7)"} {
		require.Equal(t, want, b.String())
	}
	d := pooltest.NewDriver(1 << 30) // which has no virtual memory
	_, err := cupool.New(cupool.Config{Driver: d, Backing: cupool.BackingVMM})
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	_ = pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingAuto})
}

// What goes wrong where no error can be returned goes to the Logger.
func TestLogger(t *testing.T) {
	var log bytes.Buffer
	c, d := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	x := pooltest.NewScript(t, c, d).Run("a=2M busy:1 use:a@1")
	require.Empty(t, log.String())
	d.Fail("RecordEvent", errors.New("no luck"))
	x.Run("free:a")
	require.Contains(t, log.String(), "recording an event failed")
	require.Contains(t, log.String(), "no luck")
	d.Fail("Memset", cupool.ErrDeviceLost)
	require.Error(t, c.DefaultStream().Memset(1, 0, 1))
	require.Contains(t, log.String(), "device lost")
	require.Contains(t, log.String(), "device=counting")
}

// Package sizeclass tests the grammar.
func TestParseDivisions(t *testing.T) {
	d, err := cupool.ParseDivisions("[1:8,4:2]")
	require.NoError(t, err)
	require.Equal(t, cupool.Divisions{8, 0, 2}, d)
	require.Equal(t, "none", cupool.Divisions{}.String())
	require.Equal(t, "8", cupool.SameDivisions(8).String())
	_, err = cupool.ParseDivisions("[4:3]")
	var ce *cupool.ConfigError
	require.ErrorAs(t, err, &ce)
	require.Equal(t, "divisions", ce.Field)
	require.Contains(t, ce.Reason, "SIZE:DIVISIONS")
}

func TestParseAllocConf(t *testing.T) {
	for conf, want := range map[string]cupool.Config{
		"":                      {},
		"  ":                    {},
		"max_split_size_mb:512": {MaxSplit: 512 * mib},
		"max_split_size_mb:512,max_non_split_rounding_mb:32":                    {MaxSplit: 512 * mib, MaxNonSplitRounding: 32 * mib},
		"large_segment_size_mb:32":                                              {LargeSegment: 32 * mib},
		"garbage_collection_threshold:0.8, max_split_size_mb: 512":              {GarbageCollectionThreshold: 0.8, MaxSplit: 512 * mib},
		"per_process_memory_fraction:0.5":                                       {Fraction: 0.5},
		"expandable_segments:True":                                              {Backing: cupool.BackingVMM},
		"expandable_segments:False":                                             {Backing: cupool.BackingSegments},
		"roundup_power2_divisions:8":                                            {Divisions: cupool.SameDivisions(8)},
		"roundup_power2_divisions:[1:2, >:8],strategy:first-fit":                {Divisions: cupool.Divisions{2, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8}, Strategy: cupool.FirstFit},
		"idle_order:device":                                                     {IdleOrder: cupool.DeviceOrder},
		"strategy:power-of-two,backing:auto":                                    {Strategy: cupool.PowerOfTwo},
		"limit:2G,initial_size:64MiB,growth_factor:1.5,soft_limit:1g,decay:10s": {Limit: 2 << 30, InitialSize: 64 * mib, GrowthFactor: 1.5, SoftLimit: 1 << 30, Decay: 10 * time.Second},
		"small_limit:512K,small_segment:1M,large_limit:8M,segment_rounding:1M,min_split:4096,min_block:256,max_chunk:2M": {SmallLimit: 512 << 10, SmallSegment: mib, LargeLimit: 8 * mib, SegmentRounding: mib, MinSplit: 4096, MinBlock: 256, MaxChunk: 2 * mib},
		"sanitize_canaries:256,sanitize_poison:True,sanitize_quarantine:1G,sanitize_guard:True,sanitize_wait:True,zero_on_alloc:True,zero_on_free:True": {
			Sanitize: cupool.Sanitizers{Canaries: 256, Poison: true, Quarantine: 1 << 30, Guard: true, Wait: true}, ZeroOnAlloc: true, ZeroOnFree: true},
		"magazine_bytes:none,history_events:4096,history_sample_bytes:512K": {MagazineBytes: -1, History: &cupool.History{Events: 4096, SampleBytes: 512 << 10}},
		"history_sample_bytes:0": {},
		"limit:100MiB,fraction:0.5,divisions:8,max_split:512M,max_non_split_rounding:1M,large_segment:32M,wait_timeout:30s": { // fields by their names
			Limit: 100 * mib, Fraction: 0.5, Divisions: cupool.SameDivisions(8), MaxSplit: 512 * mib, MaxNonSplitRounding: mib, LargeSegment: 32 * mib, WaitTimeout: 30 * time.Second},
		"limit:1G,limit:1G":                    {Limit: 1 << 30},
		"backing:vmm,expandable_segments:True": {Backing: cupool.BackingVMM}, // says the same
	} {
		got, err := cupool.ParseAllocConf(conf)
		require.NoError(t, err, conf)
		require.Equal(t, want, cupool.WithoutSources(got), conf)
	}
}

// Every error names the key, the value and what is allowed.
func TestParseAllocConfErrors(t *testing.T) {
	for conf, want := range map[string]struct{ field, reason string }{
		"max_split_size":                    {"settings", "KEY:VALUE"},
		"decay:1s,":                         {"settings", "KEY:VALUE"},
		"max_split_size_bytes:512":          {"settings", "is no key; the nearest is max_split_size_mb"},
		"backend:cudaMallocAsync":           {"backend", "must be native"},
		"Decay:1s":                          {"settings", "is no key"},
		"max_split_size_mb:0":               {"max_split_size_mb", "whole number of MiB, at least 1"},
		"max_split_size_mb:1.5":             {"max_split_size_mb", "whole number of MiB, at least 1"},
		"max_split_size_mb:9999999999999":   {"max_split_size_mb", "whole number of MiB"},
		"max_split_size_mb:19":              {"max_split_size_mb", "must be at least large_segment (20 MiB)"},
		"large_segment_size_mb:8":           {"large_segment_size_mb", "at least large_limit (10 MiB)"},
		"max_non_split_rounding_mb:32":      {"max_non_split_rounding_mb", "needs max_split"},
		"garbage_collection_threshold:1":    {"garbage_collection_threshold", "in (0, 1)"},
		"garbage_collection_threshold:most": {"garbage_collection_threshold", "a number in (0, 1)"},
		"per_process_memory_fraction:1.01":  {"per_process_memory_fraction", "in (0, 1]"},
		"per_process_memory_fraction:NaN":   {"per_process_memory_fraction", "in (0, 1]"},
		"fraction:1e-400":                   {"fraction", "in (0, 1]"}, // which is read as 0: no bound
		"limit:0.1":                         {"limit", "such as 512MiB"},
		"decay:0.1ns":                       {"decay", "such as 10s"},
		"expandable_segments:true":          {"expandable_segments", "True or False"},
		"expandable_segments:":              {"expandable_segments", "True or False"},
		"roundup_power2_divisions:3":        {"roundup_power2_divisions", "a power of two, or a list"},
		"roundup_power2_divisions:[256:1":   {"roundup_power2_divisions", "a power of two, or a list"},
		"strategy:worst-fit":                {"strategy", "one of best-fit, first-fit, segregated, power-of-two"},
		"limit:-1":                          {"limit", "a size such as 512MiB"},
		"decay:1":                           {"decay", "a duration such as 10s"},
		"decay:1ms":                         {"decay", "at least 50ms"},
		"growth_factor:0.5":                 {"growth_factor", "from 1 to 64"},
		"min_block:1000":                    {"min_block", "a power of two, from 256, which CUDA aligns memory to, to small_limit (1 MiB), that divides small_segment (2 MiB), large_segment (20 MiB) and segment_rounding (2 MiB)"},
		"history_events:few":                {"history_events", "a whole number"},
		"history_events:16777217":           {"history_events", "from 0 to 16777216"},
		"magazine_bytes:some":               {"magazine_bytes", `or "none"`},
		// Contradictions.
		"decay:1s,decay:2s":                                {"decay", "contradicts decay = 1s"},
		"backing:vmm,expandable_segments:False":            {"expandable_segments", "contradicts backing = vmm"},
		"backing:vmm,max_split_size_mb:512":                {"max_split_size_mb", "is for segments, not for backing vmm"},
		"garbage_collection_treshold:0.8":                  {"settings", "the nearest is garbage_collection_threshold"},
		"strategy:power-of-two,roundup_power2_divisions:8": {"roundup_power2_divisions", "must not be set with strategy power-of-two"},
		"limit:1G,initial_size:2G":                         {"initial_size", "must not be larger than limit (1 GiB)"},
	} {
		_, err := cupool.ParseAllocConf(conf)
		require.ErrorIs(t, err, cupool.ErrInvalidConfig, conf)
		var ce *cupool.ConfigError
		require.ErrorAs(t, err, &ce, conf)
		require.Equal(t, want.field, ce.Field, conf)
		require.Contains(t, ce.Reason, want.reason, conf)
		require.NotNil(t, ce.Value)
	}
}

// setEnv sets these variables of the environment, and none of ours beside.
func setEnv(t *testing.T, vars map[string]string) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "CUPOOL_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range vars {
		t.Setenv(name, value)
	}
}

// The program comes before the environment, and that before the defaults.
func TestConfigFromEnv(t *testing.T) {
	setEnv(t, map[string]string{
		cupool.AllocConf:       "garbage_collection_threshold:0.8,max_split_size_mb:512,strategy:first-fit,decay:10s",
		"CUPOOL_LIMIT":         "2GiB",
		"CUPOOL_INITIAL_SIZE":  "64M",
		"CUPOOL_GROWTH_FACTOR": "2.0",
	})
	cfg, list, err := cupool.ConfigFromEnv(cupool.Config{Strategy: cupool.Segregated, SmallLimit: 512 << 10, Decay: 10 * time.Second})
	require.NoError(t, err)
	require.Equal(t, cupool.Config{
		Strategy: cupool.Segregated, SmallLimit: 512 << 10, Decay: 10 * time.Second,
		GarbageCollectionThreshold: 0.8, MaxSplit: 512 * mib, Limit: 2 << 30, InitialSize: 64 * mib, GrowthFactor: 2, NoEnvironment: true,
	}, cupool.WithoutSources(cfg))
	by := map[string]cupool.Setting{}
	for _, s := range list {
		require.NotContains(t, by, s.Field)
		by[s.Field] = s
	}
	for _, want := range []cupool.Setting{
		{Field: "Strategy", Key: "strategy", Value: "segregated", Source: cupool.SourceProgram, Unused: "CUPOOL_ALLOC_CONF=first-fit"},
		{Field: "Decay", Key: "decay", Value: "10s", Source: cupool.SourceProgram},
		{Field: "SmallLimit", Key: "small_limit", Value: "512K", Source: cupool.SourceProgram},
		{Field: "MaxSplit", Key: "max_split", Value: "512M", Source: cupool.AllocConf},
		{Field: "Limit", Key: "limit", Value: "2G", Source: "CUPOOL_LIMIT"},
		{Field: "InitialSize", Key: "initial_size", Value: "64M", Source: "CUPOOL_INITIAL_SIZE"},
		{Field: "GrowthFactor", Key: "growth_factor", Value: "2", Source: "CUPOOL_GROWTH_FACTOR"},
		{Field: "LargeSegment", Key: "large_segment", Value: "20M", Source: cupool.SourceDefault},
		{Field: "Divisions", Key: "divisions", Value: "8", Source: cupool.SourceDefault},    // of segregated
		{Field: "Backing", Key: "backing", Value: "segments", Source: cupool.SourceDefault}, // for MaxSplit
		{Field: "MagazineBytes", Key: "magazine_bytes", Value: "64M", Source: cupool.SourceDefault},
	} {
		require.Equal(t, want, by[want.Field])
	}
	cfg.Driver, cfg.GarbageCollectionThreshold = pooltest.NewDriver(1<<30), 0
	require.Zero(t, pooltest.Open(t, cfg).Config().GarbageCollectionThreshold, "what a program sets to 0 afterwards")
}

// New reads a string as PyTorch has it whole, and a variable for one setting. What means
// nothing here, and what nobody knows, is logged.
func TestNewReadsTheEnvironment(t *testing.T) {
	conf := "backend:native,expandable_segments:True,max_split_size_mb:512,pinned_use_cuda_host_register:True,garbage_collection_threshold:0.6"
	misspelt := "CUPOOL_" + "LIMTI"
	setEnv(t, map[string]string{cupool.AllocConf: conf, "CUPOOL_LIMIT": "256M", misspelt: "1G", "CUPOOL_WAIT_TIMEOUT": "3s"})
	log, lines := record()
	c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 1 << 30}), Logger: log, Decay: time.Hour})
	cfg := c.Config()
	require.Equal(t, []any{int64(256 * mib), cupool.BackingVMM, int64(0), 0.6, 3 * time.Second, time.Hour},
		[]any{cfg.Limit, cfg.Backing, cfg.MaxSplit, cfg.GarbageCollectionThreshold, cfg.WaitTimeout, cfg.Decay})
	text := strings.Join(lines(), "\n")
	for _, want := range []string{"backend:native", "max_split_size_mb:512", "pinned_use_cuda_host_register:True", "unknown variables", misspelt, "CUPOOL_LIMIT"} {
		require.Equal(t, 1, strings.Count(text, want), want)
	}

	c = pooltest.Open(t, cupool.Config{Driver: pooltest.NewDriver(1 << 30), Logger: log, NoEnvironment: true})
	require.Zero(t, c.Config().Limit)
	require.Equal(t, []string{""}, lines())

	conf = "backend:native"
	flag, err := cupool.ParseAllocConf(conf)
	require.NoError(t, err)
	flag.Driver, flag.Logger, flag.NoEnvironment = pooltest.NewDriver(1<<30), log, true
	_ = pooltest.Open(t, flag)
	require.Contains(t, strings.Join(lines(), "\n"), conf)

	setEnv(t, map[string]string{cupool.AllocConf: "limit:much"})
	_, err = cupool.New(cupool.Config{Driver: pooltest.NewDriver(1 << 30)})
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	require.ErrorContains(t, err, "limit in CUPOOL_ALLOC_CONF = much")
}

// What ParseAllocConf has set to zero comes before the environment, also where the two would not
// go together.
func TestZerosComeFirst(t *testing.T) {
	setEnv(t, map[string]string{cupool.AllocConf: "max_split:64M,idle_order:device,history_sample_bytes:1"})
	cfg, err := cupool.ParseAllocConf("backing:vmm,max_split:0,idle_order:owner,history_events:0,history_sample_bytes:0")
	require.NoError(t, err)
	read, list, err := cupool.ConfigFromEnv(cfg)
	require.NoError(t, err)
	require.Equal(t, cupool.Config{Backing: cupool.BackingVMM, NoEnvironment: true}, cupool.WithoutSources(read))
	require.Contains(t, list, cupool.Setting{Field: "MaxSplit", Key: "max_split", Value: "0", Source: cupool.SourceProgram, Unused: "CUPOOL_ALLOC_CONF=64M"})
	c := pooltest.Open(t, cfg) // New does so by itself
	require.Equal(t, cupool.OwnerOrder, c.Config().IdleOrder)
	require.NoError(t, c.Close())
}

// Settings says what is in force and where that came from, however the Config was made, also
// after it was changed and of a private pool.
func TestSettings(t *testing.T) {
	setEnv(t, map[string]string{cupool.AllocConf: "backend:native,decay:10s,limit:512M", "CUPOOL_WAIT_TIMEOUT": "3s"})
	program := cupool.Config{SmallSegment: 4 * mib, Decay: time.Minute}
	read, _, err := cupool.ConfigFromEnv(program)
	require.NoError(t, err)
	read.WaitTimeout = 0
	for name, tc := range map[string]struct {
		cfg  cupool.Config
		want map[string]string // "VALUE (SOURCE)" by key, of what no default is
		idle int
	}{
		"by New": {program, map[string]string{
			"small_segment": "4M (program)", "decay": "1m0s (program)", "limit": "512M (CUPOOL_ALLOC_CONF)", "wait_timeout": "3s (CUPOOL_WAIT_TIMEOUT)",
		}, 1},
		"by ConfigFromEnv, and changed then": {read, map[string]string{
			"small_segment": "4M (program)", "decay": "1m0s (program)", "limit": "512M (CUPOOL_ALLOC_CONF)",
		}, 1},
		"without the environment": {cupool.Config{Limit: 1 << 30, NoEnvironment: true}, map[string]string{"limit": "1G (program)"}, 0},
	} {
		tc.cfg.Driver = simdev.New(simdev.Config{Capacity: 1 << 30})
		c := pooltest.Open(t, tc.cfg)
		idle := 0
		settings := func(c *cupool.Pool) map[string]string {
			set := map[string]string{}
			idle = 0
			for _, s := range c.Settings() {
				switch {
				case s.Field == "":
					idle++
				case s.Key == "backing":
					require.Equal(t, []string{"vmm", cupool.SourceDefault}, []string{s.Value, s.Source}, name)
				case s.Source != cupool.SourceDefault:
					set[s.Key] = s.Value + " (" + s.Source + ")"
				}
			}
			return set
		}
		require.Equal(t, tc.want, settings(c), name)
		require.Equal(t, tc.idle, idle, name)

		p, err := c.NewPool(cupool.PoolConfig{Limit: 64 * mib})
		require.NoError(t, err)
		own := maps.Clone(tc.want)
		own["limit"] = "64M (program)"
		require.Equal(t, own, settings(p), name)

		require.NoError(t, c.Configure("limit:100M,divisions:4"))
		require.NoError(t, c.SetSoftLimit(50*mib))
		changed := maps.Clone(tc.want)
		changed["limit"], changed["divisions"], changed["soft_limit"] = "100M (program)", "4 (program)", "50M (program)"
		require.Equal(t, changed, settings(c), name)
		require.NoError(t, c.Configure("limit:0,divisions:1"))
		require.NoError(t, c.SetSoftLimit(0))
		delete(changed, "soft_limit")
		changed["limit"], changed["divisions"] = tc.want["limit"], "1 (program)" // that of New holds on
		require.Equal(t, changed, settings(c), name)
	}
	require.Nil(t, (*cupool.Pool)(nil).Settings())
}

func TestConfigFromEnvErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg    cupool.Config
		env    map[string]string
		expect string
	}{
		"bad value":            {env: map[string]string{"CUPOOL_LIMIT": "much"}, expect: "limit in CUPOOL_LIMIT = much: must be a size such as 512MiB or 2G"},
		"bad factor":           {env: map[string]string{"CUPOOL_GROWTH_FACTOR": "0.5"}, expect: "growth_factor in CUPOOL_GROWTH_FACTOR = 0.5: must be 0 (fixed sizes) or from 1 to 64"},
		"unknown key":          {env: map[string]string{cupool.AllocConf: "fly:1"}, expect: "CUPOOL_ALLOC_CONF = fly: is no key"},
		"two variables":        {env: map[string]string{cupool.AllocConf: "limit:1G", "CUPOOL_LIMIT": "2G"}, expect: "limit in CUPOOL_LIMIT = 2G: contradicts limit in CUPOOL_ALLOC_CONF = 1G"},
		"with the program":     {cfg: cupool.Config{Backing: cupool.BackingVMM}, env: map[string]string{cupool.AllocConf: "max_split_size_mb:64"}, expect: "max_split_size_mb in CUPOOL_ALLOC_CONF = 64: is for segments, not for backing vmm"},
		"of a default":         {env: map[string]string{"CUPOOL_SMALL_LIMIT": "100M"}, expect: "small_segment = 2097152: must be a multiple of 512, below 2^61 and at least small_limit (100 MiB); small_limit in CUPOOL_SMALL_LIMIT is 100M"},
		"beside the program's": {cfg: cupool.Config{InitialSize: 5 << 30}, env: map[string]string{cupool.AllocConf: "limit:4G"}, expect: "initial_size = 5368709120: must not be larger than limit (4 GiB); limit in CUPOOL_ALLOC_CONF is 4G"},
		"of the program":       {cfg: cupool.Config{Backing: 7}, env: map[string]string{cupool.AllocConf: "backing:vmm"}, expect: "Backing"},
	} {
		t.Run(name, func(t *testing.T) {
			setEnv(t, tc.env)
			_, _, err := cupool.ConfigFromEnv(tc.cfg)
			require.ErrorIs(t, err, cupool.ErrInvalidConfig)
			require.ErrorContains(t, err, tc.expect)
		})
	}
}

// What is accepted makes an allocator, and what is printed reads the same.
func FuzzParseAllocConf(f *testing.F) {
	for _, s := range []string{
		"", "max_split_size_mb:512,garbage_collection_threshold:0.8", "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", "a:[b:c,d:e],f",
		"expandable_segments:True", "limit:1e3K,decay:1h,magazine_bytes:none,growth_factor:1.5", "min_block:4K,strategy:segregated", ",:[]]",
		"limit:4611686018427387903", "soft_limit:9007199254740993", "large_segment_size_mb:1099511627775", "max_split_size_mb:99999999999999999999",
		"initial_size:4611686018427387903", "min_split:4611686018427387903,magazine_bytes:4611686018427387903", "decay:2562047h47m16.854775807s",
		"growth_factor:NaN", "per_process_memory_fraction:5e-324", "garbage_collection_threshold:0x1p-1074", "growth_factor:64,initial_size:4E",
		"small_limit:4611686018427387903,small_segment:4611686018427387903,large_limit:4611686018427387903,large_segment_size_mb:1099511627775",
		strings.Repeat("decay:1s,", 2000) + "decay:1s", strings.Repeat("[", 2000), strings.Repeat("strategy:first-fit,", 1000),
		"garbage_collection_treshold_of_this_pool:1", strings.Repeat("limit", 20) + ":1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, conf string) {
		var cfg cupool.Config
		var err error
		testkit.RequireAllocates(t, 64<<10, 256, len(conf), func() { cfg, err = cupool.ParseAllocConf(conf) })
		if err != nil {
			var ce *cupool.ConfigError
			require.ErrorAs(t, err, &ce)
			require.NotEmpty(t, ce.Field)
			return
		}
		cfg.Driver = pooltest.NewDriver(1 << 62)
		if c, err := cupool.New(cfg); err == nil {
			require.NoError(t, c.Close())
		} else {
			require.False(t, errors.Is(err, cupool.ErrInvalidConfig), "%v", err)
		}
		setEnv(t, map[string]string{cupool.AllocConf: conf})
		_, list, err := cupool.ConfigFromEnv(cupool.Config{})
		require.NoError(t, err)
		var again []string
		for _, s := range list {
			if s.Source == cupool.AllocConf {
				again = append(again, s.Key+":"+s.Value)
			}
		}
		setEnv(t, map[string]string{cupool.AllocConf: strings.Join(again, ",")})
		_, same, err := cupool.ConfigFromEnv(cupool.Config{})
		require.NoError(t, err, again)
		require.Equal(t, list, same)
	})
}
