package confenv

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/sizeclass"
	"github.com/cupool/cupool/internal/testkit"
)

type color int

func (c color) String() string { return []string{"red", "green"}[c] }

type config struct {
	Size, Spare int64
	Part        float64
	Wait        time.Duration
	Color       color
	Inner       struct{ Loud bool }
	Sides       sizeclass.Divisions
}

func loud(c config) config {
	c.Inner.Loud = true
	return c
}

var table = Table[config]{Variable: "CONFENV_TEST", Prefix: "CONFENV_TEST_", Others: []string{"OTHER"}, Keys: []Key{
	{"Size", "size", Bytes},
	{"Size", "size_mb", Mebibytes},
	{"Spare", "spare", BytesOrNone},
	{"Part", "part", Number("a number")},
	{"Wait", "wait", Duration},
	{"Color", "color", Names([]string{"red", "green"})},
	{"Color", "go", Switch(1, 0)},
	{"Inner.Loud", "loud", Bool},
	{"Sides", "sides", Parsed("a list", sizeclass.ParseDivisions)},
}, Idle: []Idle{
	{Name: "backend", Value: "native", Reason: "there is one"},
	{Name: "pinned_*", Reason: "nothing is pinned"},
	{Name: "size_mb", Beside: "go:True", Reason: "it goes anyway"},
}, Complete: func(c config) (config, error) {
	if c.Size == 0 {
		c.Size = 1024
	}
	if c.Spare > c.Size {
		return c, &device.ConfigError{Field: "Spare", Value: c.Spare, Reason: "must be at most Size; 0 means nothing"}
	}
	return c, nil
}}

func TestParse(t *testing.T) {
	got, _, idle, err := table.Parse("size:1K, spare:none, part:0.5, wait:1s, color:green, go:True, loud:True, sides:8")
	require.NoError(t, err)
	require.Empty(t, idle)
	require.Equal(t, loud(config{Size: 1024, Spare: -1, Part: 0.5, Wait: time.Second, Color: 1, Sides: sizeclass.SameDivisions(8)}), got)
	_, _, idle, err = table.Parse("size:2M,size_mb:2")
	require.NoError(t, err)
	require.Empty(t, idle)
	got, _, idle, err = table.Parse("backend:native,pinned_this:1,size_mb:7,go:True,pinned_that:[a,b]")
	require.NoError(t, err)
	require.Equal(t, config{Color: 1}, got)
	require.Equal(t, []Setting{
		{Key: "backend", Value: "native", Source: Program, Unused: "there is one"},
		{Key: "pinned_this", Value: "1", Source: Program, Unused: "nothing is pinned"},
		{Key: "size_mb", Value: "7", Source: Program, Unused: "it goes anyway"},
		{Key: "pinned_that", Value: "[a,b]", Source: Program, Unused: "nothing is pinned"},
	}, idle)
	for conf, want := range map[string]string{
		"size":                 "settings = size: must be KEY:VALUE",
		"fly:1":                "settings = fly: is no key; the keys are color, go, loud, part, sides, size, size_mb, spare, wait",
		"sizes:1":              "settings = sizes: is no key; the nearest is sides",
		"colour:red":           "settings = colour: is no key; the nearest is color",
		"backend:other":        "backend = other: must be native: there is one",
		"color:blue":           "color = blue: must be one of red, green",
		"go:yes":               "go = yes: must be True or False",
		"color:green,go:False": "go = False: contradicts color = green",
		"sides:3":              "sides = 3: must be a list",
		"size:1M,size_mb:2":    "size_mb = 2: contradicts size = 1M",
		"spare:2K":             "spare = 2K: must be at most size",
	} {
		_, _, _, err := table.Parse(conf)
		var ce *device.ConfigError
		require.ErrorAs(t, err, &ce, conf)
		require.Equal(t, want, fmt.Sprintf("%s = %v: %s", ce.Field, ce.Value, ce.Reason))
	}
}

func TestEnviron(t *testing.T) {
	t.Setenv("CONFENV_TEST", "color:green,part:0.5,loud:True,pinned_x:y")
	t.Setenv("CONFENV_TEST_SIZE", " 2K ")
	cfg, list, err := table.Environ(loud(config{Part: 0.25}))
	require.NoError(t, err)
	require.Equal(t, loud(config{Size: 2048, Part: 0.25, Color: 1}), cfg)
	require.Equal(t, []Setting{
		{Field: "Size", Key: "size", Value: "2K", Source: "CONFENV_TEST_SIZE"},
		{Field: "Spare", Key: "spare", Value: "0", Source: Default},
		{Field: "Part", Key: "part", Value: "0.25", Source: Program, Unused: "CONFENV_TEST=0.5"},
		{Field: "Wait", Key: "wait", Value: "0s", Source: Default},
		{Field: "Color", Key: "color", Value: "green", Source: "CONFENV_TEST"},
		{Field: "Inner.Loud", Key: "loud", Value: "True", Source: Program},
		{Field: "Sides", Key: "sides", Value: "none", Source: Default},
		{Key: "pinned_x", Value: "y", Source: "CONFENV_TEST", Unused: "nothing is pinned"},
	}, list)
	t.Setenv("CONFENV_TEST_SIZE", "much")
	_, _, err = table.Environ(config{})
	require.ErrorContains(t, err, "size in CONFENV_TEST_SIZE = much: must be a size")
}

// What is set to zero comes before the environment, in a field of a field, too, and where the two
// would not go together.
func TestEnvironZeros(t *testing.T) {
	t.Setenv("CONFENV_TEST", "spare:2K,loud:True,wait:1s")
	const conf = "size:1K,spare:0,loud:False,go:False,pinned_x:y"
	cfg, zeros, _, err := table.Parse(conf)
	require.NoError(t, err)
	got, list, err := table.Environ(cfg, zeros...)
	require.NoError(t, err)
	require.Equal(t, config{Size: 1024, Wait: time.Second}, got)
	require.Equal(t, []Setting{
		{Field: "Size", Key: "size", Value: "1K", Source: Program},
		{Field: "Spare", Key: "spare", Value: "0", Source: Program, Unused: "CONFENV_TEST=2K"},
		{Field: "Part", Key: "part", Value: "0", Source: Default},
		{Field: "Wait", Key: "wait", Value: "1s", Source: "CONFENV_TEST"},
		{Field: "Color", Key: "color", Value: "red", Source: Default},
		{Field: "Inner.Loud", Key: "loud", Value: "False", Source: Program, Unused: "CONFENV_TEST=True"},
		{Field: "Sides", Key: "sides", Value: "none", Source: Default},
	}, list)
	_, _, err = table.Environ(cfg)
	require.ErrorContains(t, err, "spare in CONFENV_TEST = 2K: must be at most size")
}

func TestUnknown(t *testing.T) {
	names, nearest := table.Unknown([]string{
		"CONFENV_TEST=x", "CONFENV_TEST_NONE=", "CONFENV_TEST_SIZE=1", "CONFENV_TEST_INNER_LOUD=1", "CONFENV_TEST_LOUD=1", "CONFENV_TEST_SIZ=1", "CONFENV_TEST_OTHERS=1", "PATH=/",
		"CONFENV_TEST_SIZE_MB=1",
	})
	require.Equal(t, []string{"CONFENV_TEST_INNER_LOUD", "CONFENV_TEST_SIZ", "CONFENV_TEST_SIZE_MB"}, names)
	require.Equal(t, []string{"CONFENV_TEST_LOUD", "CONFENV_TEST_SIZE", "CONFENV_TEST_SIZE"}, nearest)
}

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"limit", "limit", 0}, {"limit", "limti", 1}, {"limit", "lmiti", 2}, {"ab", "ba", 1}, {"abc", "ca", 3}} {
		require.Equal(t, tc.want, distance(tc.a, tc.b), tc)
	}
}

// Whatever variables the sources and pages name, nobody is warned of.
func TestVariablesAreKnown(t *testing.T) {
	variable := regexp.MustCompile(`\bCUPOOL_[A-Z][A-Z0-9_]*`)
	keys := Table[config]{Variable: "CUPOOL_ALLOC_CONF", Prefix: "CUPOOL_", Keys: Keys, Others: Others}
	found := 0
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "build" || name == ".git" || name == "capi"): // C has names of its own that begin so
			return filepath.SkipDir
		case path == "../../docs/c.md" || path == "../../python/tests/test_python.py":
			return nil
		case d.IsDir() || !slices.Contains([]string{".go", ".md", ".py", ".sh"}, filepath.Ext(name)) || path == "../../internal/confenv/confenv_test.go":
			return nil
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, name := range variable.FindAllString(string(text), -1) {
			found++
			unknown, _ := keys.Unknown([]string{name + "=1"})
			require.Empty(t, unknown, path)
		}
		return nil
	}))
	require.Greater(t, found, 50)
}

func TestSplit(t *testing.T) {
	require.Equal(t, []string{"a:[b:c,d:e]", "f"}, split("a:[b:c,d:e],f"))
	require.Equal(t, []string{"", ":[]]", ""}, split(",:[]],"))
}

// An error has no more of a setting beside the one that is wrong than of that.
func TestShortErrors(t *testing.T) {
	long := strings.Repeat("0", 5000) + "1K"
	_, _, _, err := table.Parse("size:" + long + ",size:2K")
	require.ErrorContains(t, err, "size = 2K: contradicts size = 1K")
	require.Less(t, len(err.Error()), 500)
	t.Setenv("CONFENV_TEST", "size:"+long)
	_, _, err = table.Environ(config{Spare: 2048})
	require.ErrorContains(t, err, "spare = 2048: must be at most size; size in CONFENV_TEST is 1K")
	require.Less(t, len(err.Error()), 500)
}

// Settings that are said again and again take no more than what they are long.
func TestLongSettings(t *testing.T) {
	for _, item := range []string{"wait:1s,", "[", "x", ":", "loud:True,", "size:1,", "part:1,"} {
		conf := strings.TrimSuffix(strings.Repeat(item, 3000), ",")
		testkit.RequireAllocates(t, 64<<10, 256, len(conf), func() { _, _, _, _ = table.Parse(conf) })
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
		testkit.RequireAllocates(t, 64<<10, 256, len(conf), func() { got, _, _, err = table.Parse(conf) })
		if err != nil {
			var ce *device.ConfigError
			require.ErrorAs(t, err, &ce)
			require.NotEmpty(t, ce.Field)
			require.NotEmpty(t, ce.Reason)
			return
		}
		var items []string
		for i := range table.Keys {
			if k := &table.Keys[i]; k == table.first(k.Field) && k.isSet(&got) {
				items = append(items, k.Name+":"+k.format(&got))
			}
		}
		again, _, _, err := table.Parse(strings.Join(items, ","))
		require.NoError(t, err, items)
		if got.Part != got.Part { // NaN, which is not equal to itself
			got.Part, again.Part = 0, 0
		}
		require.Equal(t, got, again)
	})
}
