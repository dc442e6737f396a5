package confenv

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/allocbound"
	"github.com/cupool/cupool/internal/device"
)

type color int

func (c color) String() string { return []string{"red", "green"}[c] }

type config struct {
	size, spare int64
	part        float64
	wait        time.Duration
	color       color
	loud        bool
}

var table = Table[config]{Variable: "CONFENV_TEST", Keys: []Key[config]{
	NewKey("Size", "size", Bytes(func(c *config) *int64 { return &c.size })).Also("CONFENV_TEST_SIZE"),
	NewKey("Size", "size_mb", Mebibytes(func(c *config) *int64 { return &c.size })),
	NewKey("Spare", "spare", BytesOrNone(func(c *config) *int64 { return &c.spare })),
	NewKey("Part", "part", Number("a number", func(c *config) *float64 { return &c.part })),
	NewKey("Wait", "wait", Duration("a duration", func(c *config) *time.Duration { return &c.wait })),
	NewKey("Color", "color", Names([]string{"red", "green"}, func(c *config) *color { return &c.color })),
	NewKey("Loud", "loud", Bool(func(c *config) bool { return c.loud }, func(c *config, on bool) { c.loud = on })),
}, Complete: func(c config) (config, error) {
	if c.size == 0 {
		c.size = 1024
	}
	if c.spare > c.size {
		return c, &device.ConfigError{Field: "Spare", Value: c.spare, Reason: "must be at most Size; 0 means nothing"}
	}
	return c, nil
}}

func TestParse(t *testing.T) {
	got, err := table.Parse("size:1K, spare:none, part:0.5, wait:1s, color:green, loud:True")
	require.NoError(t, err)
	require.Equal(t, config{size: 1024, spare: -1, part: 0.5, wait: time.Second, color: 1, loud: true}, got)
	_, err = table.Parse("size:2M,size_mb:2")
	require.NoError(t, err)
	for conf, want := range map[string]string{
		"size":              "CONFENV_TEST = size: must be KEY:VALUE",
		"fly:1":             "CONFENV_TEST = fly: is no key; the keys are color, loud, part, size, size_mb, spare, wait",
		"color:blue":        "color = blue: must be one of red, green",
		"size:1M,size_mb:2": "size_mb = 2: contradicts size = 1M",
		"spare:2K":          "spare = 2K: must be at most size",
	} {
		_, err := table.Parse(conf)
		var ce *device.ConfigError
		require.ErrorAs(t, err, &ce, conf)
		require.Equal(t, want, fmt.Sprintf("%s = %v: %s", ce.Field, ce.Value, ce.Reason))
	}
}

func TestEnviron(t *testing.T) {
	t.Setenv("CONFENV_TEST", "color:green,part:0.5,loud:True")
	t.Setenv("CONFENV_TEST_SIZE", " 2K ")
	cfg, list, err := table.Environ(config{part: 0.25, loud: true})
	require.NoError(t, err)
	require.Equal(t, config{size: 2048, part: 0.25, color: 1, loud: true}, cfg)
	require.Equal(t, []Setting{
		{Field: "Size", Key: "size", Value: "2K", Source: "CONFENV_TEST_SIZE"},
		{Field: "Spare", Key: "spare", Value: "0", Source: Default},
		{Field: "Part", Key: "part", Value: "0.25", Source: Program, Unused: "CONFENV_TEST=0.5"},
		{Field: "Wait", Key: "wait", Value: "0s", Source: Default},
		{Field: "Color", Key: "color", Value: "green", Source: "CONFENV_TEST"},
		{Field: "Loud", Key: "loud", Value: "True", Source: Program},
	}, list)
	t.Setenv("CONFENV_TEST_SIZE", "much")
	_, _, err = table.Environ(config{})
	require.ErrorContains(t, err, "size in CONFENV_TEST_SIZE = much: must be a size")
}

func TestSplit(t *testing.T) {
	require.Equal(t, []string{"a:[b:c,d:e]", "f"}, split("a:[b:c,d:e],f"))
	require.Equal(t, []string{"", ":[]]", ""}, split(",:[]],"))
}

// Settings that are said again and again take no more than what they are long.
func TestLongSettings(t *testing.T) {
	for _, item := range []string{"wait:1s,", "[", "x", ":", "loud:True,", "size:1,", "part:1,"} {
		conf := strings.TrimSuffix(strings.Repeat(item, 3000), ",")
		allocbound.Require(t, 64<<10, 256, len(conf), func() { _, _ = table.Parse(conf) })
	}
}

// FuzzParse: settings are read or refused with a *device.ConfigError, allocate no
// more than they may, and what every field is printed as reads the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", " ", "size:1K, spare:none, part:0.5, wait:1s, color:green, loud:True", "size:2M,size_mb:2", "size", "fly:1", "color:blue",
		"size:1M,size_mb:2", "spare:2K", "part:NaN", "part:nan,part:NaN", "part:inf", "part:-0", "part:0x1p-1074", "part:1e400", "size_mb:1099511627776",
		"size_mb:1099511627775", "size:4611686018427387903,spare:9007199254740993", "wait:-1ns", "wait:2562047h47m16.854775807s", ",:[]]", "size:[1,2]", "\x00:\xff",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, conf string) {
		var got config
		var err error
		allocbound.Require(t, 64<<10, 256, len(conf), func() { got, err = table.Parse(conf) })
		if err != nil {
			var ce *device.ConfigError
			require.ErrorAs(t, err, &ce)
			require.NotEmpty(t, ce.Field)
			require.NotEmpty(t, ce.Reason)
			return
		}
		var items []string
		for i := range table.Keys {
			if k := &table.Keys[i]; k == table.first(k.Field) && k.IsSet(&got) {
				items = append(items, k.Name+":"+k.Format(&got))
			}
		}
		again, err := table.Parse(strings.Join(items, ","))
		require.NoError(t, err, items)
		if got.part != got.part { // NaN, which is not equal to itself
			got.part, again.part = 0, 0
		}
		require.Equal(t, got, again)
	})
}
