package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUsage(t *testing.T) {
	status, _, stderr := tool(t)
	assert.Equal(t, 2, status)
	assert.Contains(t, stderr, "usage: cupool COMMAND")
	status, stdout, _ := tool(t, "help")
	assert.Zero(t, status)
	for _, c := range commands {
		assert.Contains(t, stdout, c.name)
		status, _, stderr := tool(t, c.name, "-h")
		assert.Zero(t, status, c.name)
		assert.Contains(t, stderr, "usage: cupool "+c.name)
		status, _, _ = tool(t, c.name, "-no-such-flag")
		assert.Equal(t, 2, status, c.name)
	}
	_, _, stderr = tool(t, "replay", "-h")
	assert.Contains(t, stderr, "-capacity bytes")
	status, _, stderr = tool(t, "fly")
	assert.Equal(t, 2, status)
	assert.Contains(t, stderr, `unknown command "fly"`)
}

// What goes wrong is one line, and nothing else.
func TestErrors(t *testing.T) {
	none := httptest.NewServer(http.NotFoundHandler()) // not http.DefaultServeMux, where package debug is
	defer none.Close()
	dir := t.TempDir()
	trace, picture := filepath.Join(dir, "damaged"), filepath.Join(dir, "damaged.json")
	require.NoError(t, os.WriteFile(trace, []byte("a 0 1 0\nf 1\n"), 0o666))
	require.NoError(t, os.WriteFile(picture, []byte(`{"segments": [{"total_size": 5}]}`), 0o666))
	before, _ := snapshots(t)
	for _, c := range []struct {
		status int
		args   []string
		want   string
	}{
		{2, []string{"info", "more"}, `unexpected argument "more"`},
		{2, []string{"view"}, "which file?"},
		{1, []string{"view", "no-such-file"}, "open no-such-file: no such file or directory"},
		{1, []string{"view", "view.go"}, "not a memory snapshot"},
		{1, []string{"view", "view.go"}, "nor a trace"},
		{1, []string{"view", "-no-browser", "-addr", "256.0.0.1:x", traces + "holes.trace"}, "listen tcp"},
		{2, []string{"top"}, "it takes one URL, such as localhost:6060"},
		{2, []string{"top", "localhost:6060", "localhost:6061"}, "it takes one URL"},
		{2, []string{"top", "-every", "1ms", "localhost:6060"}, "-every 1ms is less than 100ms"},
		{1, []string{"top", none.URL}, "/debug/cupool/: there is no debug page of cupool: 404 Not Found"},
		{2, []string{"diff", before}, "two snapshots are compared"},
		{2, []string{"diff", "-top", "0", before, before}, "and tables have a line or more"},
		{1, []string{"diff", before, "nowhere"}, "no such file or directory"},
		{1, []string{"diff", traces + "holes.trace", before}, "not a memory snapshot: at byte 0: it is neither JSON nor a pickle"},
		{1, []string{"diff", before, picture}, picture + ": not a memory snapshot: segments[0]: its blocks are not"},
		{1, []string{"replay", trace}, trace + ":2: unknown ID 1: no such block was allocated"},
		{1, []string{"replay", "none"}, "open none: no such file or directory"},
		{2, []string{"replay"}, "which trace?"},
		{2, []string{"replay", "-backing", "x", trace}, `unknown backing "x": it is one of segments, vmm, planned`},
		{2, []string{"replay", "-device", "gpu", trace}, `unknown device "gpu": it is sim, host or cuda`},
		{2, []string{"replay", "-verify", trace}, "the simulated device has no memory whose contents could be verified"},
		{2, []string{"replay", "-plot", "x.gif", trace}, `a plot ends in .svg or .png, not ".gif"`},
		{2, []string{"replay", "-capacity", "0", trace}, `invalid value "0" for flag -capacity: a device has at least one byte`},
		{2, []string{"replay", "-x", trace}, "flag provided but not defined: -x"},
	} {
		status, out, errs := tool(t, c.args...)
		assert.Equal(t, c.status, status, c.args)
		assert.Empty(t, out, c.args)
		assert.True(t, strings.HasPrefix(errs, "cupool "+c.args[0]+": "), errs)
		assert.Contains(t, errs, c.want)
		if more := " (cupool " + c.args[0] + " -h tells more)\n"; status == 2 {
			assert.True(t, strings.HasSuffix(errs, more), errs)
		}
	}
}

func TestInfo(t *testing.T) {
	status, stdout, stderr := tool(t, "info")
	require.Zero(t, status, stderr)
	assert.Contains(t, stdout, "host device")
	assert.Contains(t, stdout, "16 GiB free of 16 GiB")
	assert.Regexp(t, `CUDA driver +(for CUDA \d|.*no NVIDIA driver here)`, stdout)
	assert.Regexp(t, `(?m)^settings +limit:0 +\(default\)$`, stdout)
}

// Settings come from the flag, else the environment, else by default.
func TestInfoSettings(t *testing.T) {
	t.Setenv("CUPOOL_ALLOC_CONF", "max_split_size_mb:64,strategy:first-fit")
	t.Setenv("CUPOOL_LIMIT", "2G")
	status, stdout, stderr := tool(t, "info", "-conf", "strategy:segregated,decay:10s")
	require.Zero(t, status, stderr)
	for _, want := range []string{
		`limit:2G +\(CUPOOL_LIMIT\)`, `max_split:64M +\(CUPOOL_ALLOC_CONF\)`, `decay:10s +\(flag\)`,
		`strategy:segregated +\(flag, not CUPOOL_ALLOC_CONF=first-fit\)`, `large_segment:20M +\(default\)`,
	} {
		assert.Regexp(t, `(?m) `+want+`$`, stdout)
	}
	status, _, stderr = tool(t, "info", "-conf", "fly:1")
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, "fly: is no key")
	t.Setenv("CUPOOL_LIMIT", "much")
	status, _, stderr = tool(t, "info")
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, "limit in CUPOOL_LIMIT = much: must be a size")
}
