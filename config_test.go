package cupool_test

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
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
		"MinSplit":                   {{MinSplit: -1}, {MinSplit: 511}, {MinSplit: 255, MinBlock: 256}},
		"Backing":                    {{Backing: -1}, {Backing: cupool.BackingVMM + 1}},
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

func TestConfigExtremes(t *testing.T) {
	for name, cfg := range map[string]cupool.Config{
		"zero":               {},
		"one byte":           {Limit: 1},
		"smallest":           {SmallLimit: 1, SmallSegment: 512, LargeLimit: 1, LargeSegment: 512, SegmentRounding: 512, MinSplit: 512},
		"smallest blocks":    {SmallLimit: 1, SmallSegment: 512, LargeLimit: 1, LargeSegment: 512, SegmentRounding: 512, MinSplit: 256, MinBlock: 256},
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
			c, err := cupool.New(cfg)
			require.NoError(t, err)
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

func TestFractionNeedsTheDevicesSize(t *testing.T) {
	d := failingInfo()
	_, err := cupool.New(cupool.Config{Driver: d, Fraction: 0.5})
	require.ErrorContains(t, err, "no luck")
	_, err = cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err, "without one, nobody asks")
}

func failingInfo() cupool.Driver {
	d := pooltest.NewDriver(1 << 30)
	d.Fail("MemInfo", errors.New("no luck"))
	return d
}

func TestBacking(t *testing.T) {
	for b, want := range map[cupool.Backing]string{cupool.BackingAuto: "auto", cupool.BackingSegments: "segments", cupool.BackingVMM: "vmm", 7: "Backing(7)"} {
		require.Equal(t, want, b.String())
	}
	d := pooltest.NewDriver(1 << 30) // which has no virtual memory
	_, err := cupool.New(cupool.Config{Driver: d, Backing: cupool.BackingVMM})
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	_, err = cupool.New(cupool.Config{Driver: d, Backing: cupool.BackingAuto})
	require.NoError(t, err)
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

// What PyTorch's test_allocator_settings asks of roundup_power2_divisions, and
// the formula of its round_size.
func TestDivisionsRoundAsPyTorch(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, text := range []string{"4", "64", "[1:2,2:4,>:8]", "[64:8,128:2,256:4,512:2,1024:4,>:8]"} {
		d, err := cupool.ParseDivisions(text)
		require.NoError(t, err)
		c, _ := pooltest.New(t, 1<<40, func(cfg *cupool.Config) { cfg.Divisions, cfg.MinSplit = d, 512 })
		for range 300 {
			size := 1 + r.Int64N(1<<(1+r.IntN(33)))
			b, err := c.Alloc(size, nil)
			require.NoError(t, err)
			require.Equal(t, torchRound(size, d), c.Stats().LiveBytes, "%s: %d bytes", text, size)
			require.NoError(t, c.Free(b))
		}
	}
}

// torchRound is PyTorch's round_size, with its floating point.
func torchRound(size int64, d cupool.Divisions) int64 {
	quantum := func(n int64) int64 { return (n + 511) / 512 * 512 }
	if size < 512 {
		return 512
	}
	n := int64(d[min(max(int(math.Floor(math.Log2(float64(size))))-20, 0), 15)])
	if n <= 1 || size <= 512*n {
		return quantum(size)
	}
	floor := int64(math.Exp2(math.Floor(math.Log2(float64(size)))))
	if size == floor {
		return size
	}
	step := floor / n
	return (size + step - 1) / step * step
}
