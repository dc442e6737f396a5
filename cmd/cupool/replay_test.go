package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/cmd/internal/replay"
)

const traces = "../../testdata/traces/"

// tool runs the program and returns what it printed.
// tool runs a command. On a busy machine it may say how far it has come: that is not returned.
func tool(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	status = run(context.Background(), args, &out, &errs)
	return status, out.String(), progressLine.ReplaceAllString(errs.String(), "")
}

var progressLine = regexp.MustCompile(`(?m)^\S+ \(\d+/\d+\): \d+ of \d+ events\n`)

func TestReplayTable(t *testing.T) {
	status, out, errs := tool(t, "replay", "-backing", "segments", traces+"holes.trace", traces+"torch_default.pickle.gz")
	require.Zero(t, status, errs)
	require.Empty(t, errs)
	lines := strings.Split(out, "\n")
	require.Contains(t, lines[0], "segments, best-fit, on sim;")
	require.Regexp(t, `^ *trace +events +peak requested +reserved +ratio `, lines[2])
	require.Regexp(t, `^ *holes +18 +40 MiB +\d\d MiB +1\.\d{3} +\d+ +\d+ +\d+µs +\d+ +0 +1\.400 +1\d\dµs$`, lines[3])
	require.Regexp(t, `^ *torch_default +379 +77\.9 MiB `, lines[4])
	require.Regexp(t, `^ *geometric mean +1\.\d\d\d +1\.\d\d\d *$`, lines[5])
	require.Equal(t, "torch_default: allocations that failed when this was recorded, which are left out: 1", lines[6])
}

func TestReplayJSON(t *testing.T) {
	status, out, errs := tool(t, "replay", "-json", "-backing", "vmm", "-strategy", "best-fit", traces+"holes.trace", traces+"sizes.trace")
	require.Zero(t, status, errs)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 2)
	var r replay.Result
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &r))
	require.Equal(t, traces+"holes.trace", r.Trace)
	require.Equal(t, "vmm", r.Backing)
	require.Equal(t, "best-fit", r.Strategy)
	require.Equal(t, 18, r.Events)
	require.EqualValues(t, 10*4<<20, r.PeakRequestedBytes)
	require.EqualValues(t, 1, r.Ratio)
	require.Equal(t, []string{"trace", "backing", "strategy", "events", "peak_requested_bytes", "peak_reserved_bytes", "ratio",
		"driver_allocs", "driver_us_modelled", "ns_per_event", "failed_allocs"}, keysOf(t, lines[1]))
}

// The allocator is set up by -conf and the environment; flags of their own come
// first.
func TestReplaySettings(t *testing.T) {
	t.Setenv("CUPOOL_ALLOC_CONF", "strategy:power-of-two,max_split_size_mb:64")
	for flags, want := range map[string]replay.Result{
		"":                         {Backing: "segments", Strategy: "power-of-two"},
		"-conf strategy:first-fit": {Backing: "segments", Strategy: "first-fit"},
		"-strategy best-fit -conf strategy:first-fit": {Backing: "segments", Strategy: "best-fit"},
	} {
		args := append(append([]string{"replay", "-json"}, strings.Fields(flags)...), traces+"holes.trace")
		status, out, errs := tool(t, args...)
		require.Zero(t, status, errs)
		var got replay.Result
		require.NoError(t, json.Unmarshal([]byte(out), &got))
		require.Equal(t, want.Backing, got.Backing, flags)
		require.Equal(t, want.Strategy, got.Strategy, flags)
	}
	status, _, errs := tool(t, "replay", "-conf", "fly:1", traces+"holes.trace")
	require.Equal(t, 2, status)
	require.Contains(t, errs, "fly: is no key")
}

// keysOf returns the keys of a JSON object in their order.
func keysOf(t *testing.T, object string) (keys []string) {
	d := json.NewDecoder(strings.NewReader(object))
	for i := 0; d.More() || i == 0; i++ {
		token, err := d.Token()
		require.NoError(t, err)
		if i%2 == 1 {
			keys = append(keys, token.(string))
		}
	}
	return keys
}

func TestReplayMagazines(t *testing.T) {
	status, out, errs := tool(t, "replay", "-magazines", traces+"sizes.trace")
	require.Zero(t, status, errs)
	require.Contains(t, out, " sizes ")
}

func TestReplayTooSmall(t *testing.T) {
	status, out, errs := tool(t, "replay", "-capacity", "64MiB", "-backing", "segments", traces+"full.trace")
	require.Zero(t, status, errs)
	require.Contains(t, out, "full: 2 of 6 allocations failed, the first at event 3 (by PyTorch's default: 2)\n  cupool: out of memory on sim: 16 MiB requested")
}

// Where a trace fails, what came of those before it is printed.
func TestReplayLaterFails(t *testing.T) {
	big := filepath.Join(t.TempDir(), "big.trace")
	require.NoError(t, os.WriteFile(big, []byte("a 1 1073741824 0\nf 1\n"), 0o666))
	status, out, errs := tool(t, "replay", "-capacity", "64MiB", traces+"holes.trace", big)
	require.Equal(t, 1, status)
	require.Contains(t, errs, "all 1 allocations failed")
	require.Contains(t, out, " holes ")
}

func TestReplayHost(t *testing.T) {
	status, out, errs := tool(t, "replay", "-device", "host", "-verify", traces+"streams.trace")
	require.Zero(t, status, errs)
	require.Contains(t, out, "streams: contents of 5 blocks checked")
}

func TestReplayPlot(t *testing.T) {
	for _, name := range []string{"a.svg", "a.png"} {
		file := filepath.Join(t.TempDir(), name)
		status, _, errs := tool(t, "replay", "-plot", file, traces+"holes.trace", traces+"full.trace")
		require.Zero(t, status, errs)
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Greater(t, info.Size(), int64(5000))
	}
}

func TestReplayExplain(t *testing.T) {
	args := []string{"replay", "-explain", "-backing", "segments", traces + "holes.trace", traces + "streams.trace"}
	status, out, errs := tool(t, args...)
	require.Zero(t, status, errs)
	_, out, _ = strings.Cut(out, "\n\nholes: ")
	for _, want := range []string{
		"at event 16, which asks for 16 MiB on stream 0, 56 MiB are reserved and 36 MiB requested",
		"streams: at event 5, which asks for 1000 B on stream 3, 42 MiB are reserved and 8.001 MiB requested",
	} {
		require.Contains(t, out, want)
	}
	require.Regexp(t, `beside blocks in segments +20 MiB +35\.71 % +5 +4 MiB\n +together +20 MiB +35\.71 % *\n`, out)
	require.Regexp(t, `another stream's +32 MiB +76\.19 % +2 +20 MiB\n`, out)

	status, out, errs = tool(t, append([]string{args[0], "-json"}, args[1:]...)...)
	require.Zero(t, status, errs)
	line, _, _ := strings.Cut(out, "\n")
	var r struct {
		Explain struct {
			Event     int
			Reserved  int64 `json:"reserved_bytes"`
			Requested int64 `json:"requested_bytes"`
			Lost      []struct {
				Reason string
				Bytes  int64
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(line), &r))
	require.Equal(t, 16, r.Explain.Event)
	require.EqualValues(t, 36<<20, r.Explain.Requested)
	sum := int64(0)
	for _, l := range r.Explain.Lost {
		sum += l.Bytes
		require.NotEmpty(t, l.Reason)
	}
	require.Equal(t, r.Explain.Reserved-r.Explain.Requested, sum)
}

// Where allocations of the model of PyTorch fail, its ratio says nothing.
func TestReplayTorchFails(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "three.trace")
	require.NoError(t, os.WriteFile(trace, []byte("a 1 3145728 0\nf 1\n"), 0o666))
	status, out, errs := tool(t, "replay", "-capacity", "10MiB", trace)
	require.Zero(t, status, errs)
	require.Contains(t, out, "three: by PyTorch's default 1 of 1 allocations failed\n")
	r := replayRow{torch: replay.TorchResult{FailedAllocs: 1}}
	require.Contains(t, r.note(), "(PyTorch default: 1 allocations failed)")
}

// The mean is of the traces whose ratios say something, where these are several.
func TestReplayMeanOfComplete(t *testing.T) {
	mean := func(names ...string) string {
		args := []string{"replay", "-capacity", "64MiB", "-backing", "segments"}
		for _, name := range names {
			args = append(args, traces+name+".trace")
		}
		status, out, errs := tool(t, args...)
		require.Zero(t, status, errs)
		return regexp.MustCompile(`geometric mean( of \d)? +(.*?) *\n`).ReplaceAllString(regexp.MustCompile(`geometric mean.*\n`).FindString(out), "$1 $2")
	}
	both := strings.Fields(mean("holes", "holes"))
	require.Len(t, both, 2)
	require.Equal(t, append([]string{"of", "2"}, both...), strings.Fields(mean("holes", "full", "holes")))
	require.Empty(t, mean("holes", "full"))
}

// A command that is interrupted says so, and nothing of how.
func TestInterrupted(t *testing.T) {
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, args := range [][]string{
		{"replay", traces + "holes.trace"}, {"top", traces + "holes.trace"}, {"view", "-no-browser", traces + "holes.trace"}, {"top", page.URL}, {"view", "-no-browser", page.URL},
	} {
		var out, errs strings.Builder
		require.Equal(t, 1, run(ctx, args, &out, &errs), args)
		require.Equal(t, "cupool "+args[0]+": interrupted\n", errs.String())
	}
}
