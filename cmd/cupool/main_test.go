package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
)

func TestUsage(t *testing.T) {
	status, _, stderr := tool(t)
	assert.Equal(t, 2, status)
	assert.Equal(t, "cupool: which command? (cupool -h tells more)\n", stderr)
	status, stdout, _ := tool(t, "help")
	assert.Zero(t, status)
	assert.Contains(t, stdout, "The exit status is 0")
	commands := newRoot().Commands()
	assert.Len(t, commands, 8)
	for _, c := range commands {
		assert.Contains(t, stdout, c.Short)
		status, help, stderr := tool(t, "help", c.Name())
		assert.Zero(t, status, c.Name())
		assert.Contains(t, help, "cupool "+c.Name())
		assert.Empty(t, stderr)
		status, same, _ := tool(t, c.Name(), "-h")
		assert.Zero(t, status, c.Name())
		assert.Equal(t, help, same)
		status, _, _ = tool(t, c.Name(), "-no-such-flag")
		assert.Equal(t, 2, status, c.Name())
	}
	_, help, _ := tool(t, "replay", "-h")
	assert.Contains(t, help, "--capacity bytes")
	status, _, stderr = tool(t, "fly")
	assert.Equal(t, 2, status)
	assert.Contains(t, stderr, `cupool: unknown command "fly"`)
	_, _, stderr = tool(t, "replai")
	assert.Contains(t, stderr, `unknown command "replai": do you mean replay?`)
	for want, args := range map[string][]string{
		"cupool: a command stands in front of -- (cupool -h":         {"--", "info"},
		`cupool help: unknown command "replai": do you mean replay?`: {"help", "replai"},
		`cupool help: unexpected argument "that"`:                    {"help", "info", "that"},
		"cupool completion: which shell?":                            {"completion", "tcsh"},
		`cupool help: unexpected argument "this"`:                    {"help", "top", "this"},
		`cupool help: unexpected argument "those"`:                   {"help", "diff", "those"},
		"cupool completion: which shell? bash":                       {"completion"},
		`cupool completion bash: unexpected argument "that"`:         {"completion", "bash", "that"},
	} {
		status, stdout, stderr := tool(t, args...)
		assert.Equal(t, 2, status, args)
		assert.Contains(t, stderr, want)
		assert.Empty(t, stdout)
	}
}

// Flags stand before and behind arguments, with one dash or two.
func TestFlagsAnywhere(t *testing.T) {
	trace := traces + "holes.trace"
	var all []string
	for _, args := range [][]string{
		{"replay", "-json", "-explain", trace}, {"replay", trace, "-json", "-explain"}, {"replay", "--json", trace, "--explain=true"}, {"replay", "-json", "-explain", "--", trace},
	} {
		status, out, errs := tool(t, args...)
		require.Zero(t, status, errs)
		all = append(all, regexp.MustCompile(`"ns_per_event":[^,}]*`).ReplaceAllString(out, ""))
	}
	for _, out := range all {
		assert.Equal(t, all[0], out)
	}
}

func TestVersion(t *testing.T) {
	status, out, errs := tool(t, "version")
	require.Zero(t, status, errs)
	assert.Regexp(t, `^cupool \S.* go1\.\d+.*\n$`, out)
	status, same, errs := tool(t, "-version")
	require.Zero(t, status, errs)
	assert.Equal(t, out, same)
	assert.Equal(t, "cupool v0.1.0 abc with changes go1.26", versionOf(&debug.BuildInfo{
		GoVersion: "go1.26", Main: debug.Module{Version: "v0.1.0"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
	}))
}

// Shells complete commands, flags and files.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		status, out, errs := tool(t, "completion", shell)
		require.Zero(t, status, errs)
		assert.Contains(t, out, "cupool", shell)
	}
	_, out, _ := tool(t, "__complete", "re")
	assert.Contains(t, out, "replay\t")
	_, out, _ = tool(t, "__complete", "top", "--js")
	assert.Contains(t, out, "--json\t")
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
		{2, []string{"view"}, "it takes one SOURCE: a URL such as localhost:6060, or a file"},
		{1, []string{"view", "-no-browser", none.URL}, "there is no debug page of cupool: 404 Not Found"},
		{1, []string{"top", "no-such-file"}, "open no-such-file: no such file or directory"},
		{1, []string{"view", "no-such-file"}, "open no-such-file: no such file or directory"},
		{1, []string{"view", "view.go"}, "not a memory snapshot"},
		{1, []string{"view", "view.go"}, "nor a trace"},
		{1, []string{"view", "-no-browser", "-addr", "256.0.0.1:x", traces + "holes.trace"}, "listen tcp"},
		{2, []string{"top"}, "it takes one SOURCE"},
		{2, []string{"top", "localhost:6060", "localhost:6061"}, "it takes one SOURCE"},
		{2, []string{"view", "-no-browser", "-addr", "", traces + "holes.trace"}, "-addr is empty"},
		{2, []string{"top", "-every", "1ms", "localhost:6060"}, "-every 1ms is less than 100ms"},
		{1, []string{"top", none.URL}, "/debug/cupool/: there is no debug page of cupool: 404 Not Found"},
		{2, []string{"diff", before}, "it takes two snapshots"},
		{2, []string{"diff", "-top", "0", before, before}, "-top 0: a table has a line or more"},
		{1, []string{"diff", before, "nowhere"}, "no such file or directory"},
		{1, []string{"diff", traces + "holes.trace", before}, "not a memory snapshot: at byte 0: it is neither JSON nor a pickle"},
		{1, []string{"diff", before, picture}, picture + ": not a memory snapshot: segments[0]: its blocks are not"},
		{1, []string{"replay", trace}, trace + ":2: unknown ID 1: no such block was allocated"},
		{1, []string{"replay", "none"}, "open none: no such file or directory"},
		{2, []string{"replay"}, "which trace?"},
		{2, []string{"replay", "-backing", "x", trace}, `unknown backing "x": it is one of segments, vmm, planned`},
		{2, []string{"replay", "-device", "gpu", trace}, `unknown device "gpu": it is sim, host or cuda`},
		{2, []string{"replay", "-verify", trace}, "the simulated device has no memory whose contents could be verified"},
		{2, []string{"replay", "-conf", "sanitize_canaries:64", trace}, "could be verified, as by -verify, sanitize_canaries and sanitize_poison"},
		{2, []string{"replay", "-conf", "sanitize_poison:True", trace}, "could be verified"},
		{2, []string{"replay", "-plot", "x.gif", trace}, `a plot ends in .svg or .png, not ".gif"`},
		{2, []string{"replay", "-capacity", "0", trace}, `invalid argument "0" for "--capacity" flag: a device has at least one byte`},
		{2, []string{"replay", "-x", trace}, "unknown shorthand flag: 'x' in -x"},
		{2, []string{"replay", "-xx", trace}, "unknown flag: --xx"},
		{2, []string{"info", "-conf", "fly:1"}, "fly: is no key"},
		{1, []string{"replay", "-capacity", "1", traces + "holes.trace"}, "holes.trace: all 12 allocations failed, so that there is nothing to show: the device or its limit is too small (-capacity, -conf): cupool: out of memory on sim"},
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

// full is a file that nothing can be written to.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// What cannot be printed is an error of each command.
func TestFullOutput(t *testing.T) {
	before, after := snapshots(t)
	for _, args := range [][]string{
		{"help"}, {"-h"}, {"help", "replay"}, {"replay", "-h"}, {"version"}, {"-version"}, {"info"}, {"info", "-json"}, {"pgo"}, {"completion", "bash"},
		{"replay", traces + "holes.trace"}, {"replay", "-json", traces + "holes.trace"}, {"diff", before, after}, {"diff", "-json", before, after},
		{"top", before}, {"top", "-json", before}, {"view", "-no-browser", before},
	} {
		var errs strings.Builder
		assert.Equal(t, 1, run(t.Context(), args, full{}, &errs), args)
		assert.Regexp(t, `^cupool.*: no space left\n$`, errs.String(), args)
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

// A GPU whose memory another program holds tells nothing of its virtual memory.
func TestInfoOfFullGPU(t *testing.T) {
	for free, want := range map[int64][]string{
		-1: {"memory: unknown free of 4 GiB\n", "virtual memory: unknown\n"},
		0:  {"memory: 0 B free of 4 GiB\n", "virtual memory: no\n"},
	} {
		var out strings.Builder
		infoGPU(&out, cuda.Device{FreeBytes: free, TotalBytes: 4 << 30})
		for _, line := range want {
			assert.Contains(t, out.String(), line)
		}
	}
}

func TestInfoJSON(t *testing.T) {
	status, stdout, stderr := tool(t, "info", "-json", "-conf", "limit:1G")
	require.Zero(t, status, stderr)
	var r report
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	assert.EqualValues(t, 16<<30, r.Host.TotalBytes)
	assert.Equal(t, runtime.Version(), r.Go)
	assert.Contains(t, r.Settings, cupool.Setting{Field: "Limit", Key: "limit", Value: "1G", Source: cupool.SourceProgram})
	assert.Equal(t, r.CUDA.Error == "", len(r.CUDA.GPUs) > 0 || r.CUDA.GPUError != "", stdout)
}

// Settings come from the flag, else the environment, else by default.
func TestInfoSettings(t *testing.T) {
	t.Setenv("CUPOOL_ALLOC_CONF", "max_split_size_mb:64,strategy:first-fit,idle_order:device,soft_limit:1G")
	t.Setenv("CUPOOL_LIMIT", "2G")
	status, stdout, stderr := tool(t, "info", "-conf", "strategy:segregated,decay:10s,idle_order:owner,soft_limit:0,grow_wait:0s")
	require.Zero(t, status, stderr)
	for _, want := range []string{
		`limit:2G +\(CUPOOL_LIMIT\)`, `max_split:64M +\(CUPOOL_ALLOC_CONF\)`, `decay:10s +\(flag\)`,
		`strategy:segregated +\(flag, not CUPOOL_ALLOC_CONF=first-fit\)`, `large_segment:20M +\(default\)`,
		`idle_order:owner +\(flag, not CUPOOL_ALLOC_CONF=device\)`, `soft_limit:0 +\(flag, not CUPOOL_ALLOC_CONF=1G\)`, `grow_wait:0s +\(default\)`,
	} {
		assert.Regexp(t, `(?m) `+want+`$`, stdout)
	}
	status, _, stderr = tool(t, "info", "-conf", "fly:1")
	assert.Equal(t, 2, status)
	assert.Contains(t, stderr, "fly: is no key")
	t.Setenv("CUPOOL_LIMIT", "much")
	status, _, stderr = tool(t, "info")
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, "limit in CUPOOL_LIMIT = much: must be a size")
}
