package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/snapshot"
)

// view starts cupool view and returns the page's address.
func view(t *testing.T, file string) (url string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	status := make(chan int)
	var errs strings.Builder
	go func() { status <- run(ctx, []string{"view", "-no-browser", "-addr", "127.0.0.1:0", file}, w, &errs) }()
	t.Cleanup(func() {
		stop() // as an interrupt does
		assert.Zero(t, <-status, &errs)
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	return regexp.MustCompile(`http://\S+`).FindString(line)
}

func getJSON(t *testing.T, url string, to any) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	require.NoError(t, json.NewDecoder(resp.Body).Decode(to))
}

// A snapshot whose blocks are wrong is not shown as a replay of its events, in which they are others.
func TestDamagedSnapshot(t *testing.T) {
	c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 1 << 30}), History: &cupool.History{SampleBytes: 1}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() }) // a block is live
	_, err = c.Alloc(3<<20, nil)
	require.NoError(t, err)
	var pickle bytes.Buffer
	require.NoError(t, snapshot.WriteTorch(&pickle, c.Snapshot()))
	name := filepath.Join(t.TempDir(), "damaged.pickle")
	require.NoError(t, os.WriteFile(name, bytes.Replace(pickle.Bytes(), []byte("active_allocated"), []byte("active_alocated!"), 1), 0o666))
	status, stdout, stderr := tool(t, "top", name)
	require.Equal(t, 1, status, stdout)
	assert.Regexp(t, `^cupool top: .*damaged.pickle: not a memory snapshot: segments\[0\].blocks\[0\]: .*\n$`, stderr)
	assert.NotContains(t, stderr, "nor a trace")
}

// The page of a file ends with the command, so its address is of no use to who reads the output.
func TestTopNamesTheFile(t *testing.T) {
	before, _ := snapshots(t)
	status, stdout, stderr := tool(t, "top", before)
	require.Zero(t, status, stderr)
	assert.Regexp(t, `^cupool top +`+filepath.Base(before)+` `, stdout)
}

// Snapshots of ours and of PyTorch, and traces at their peak.
func TestView(t *testing.T) {
	c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 1 << 30})})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() }) // a block is live
	_, err = c.Alloc(3<<20, nil)
	require.NoError(t, err)
	dir := t.TempDir()
	data, err := json.Marshal(c.Snapshot())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ours.json"), data, 0o666))
	f, err := os.Create(filepath.Join(dir, "ours.pickle"))
	require.NoError(t, err)
	require.NoError(t, snapshot.WriteTorch(f, c.Snapshot()))
	require.NoError(t, f.Close())

	for file, live := range map[string]int64{
		filepath.Join(dir, "ours.json"):    3 << 20,
		filepath.Join(dir, "ours.pickle"):  3 << 20,
		traces + "holes.trace":             40 << 20,
		traces + "torch_default.pickle.gz": 0,
	} {
		url := view(t, file)
		var st cupool.Stats
		getJSON(t, url+"stats", &st)
		if live > 0 {
			assert.Equal(t, live, st.All.RequestedBytes.Current, file)
		} else {
			assert.NotZero(t, st.All.ReservedBytes.Current, file)
		}
		r, err := http.NewRequest("GET", url, nil)
		require.NoError(t, err)
		r.Host = "elsewhere.example"
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 403, resp.StatusCode)
	}
}

// A trace looks the same whatever the environment says of a program's allocator.
func TestTraceLooksTheSame(t *testing.T) {
	status, want, stderr := tool(t, "top", "-json", traces+"holes.trace")
	require.Zero(t, status, stderr)
	for _, variable := range []string{"CUPOOL_LIMIT=1M", "CUPOOL_SANITIZE_POISON=True", "CUPOOL_LIMIT=much"} {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
		status, stdout, stderr := tool(t, "top", "-json", traces+"holes.trace")
		require.Zero(t, status, stderr)
		without := regexp.MustCompile(`"Time":"[^"]*"`)
		require.Equal(t, without.ReplaceAllString(want, ""), without.ReplaceAllString(stdout, ""), variable)
	}
}

// One page is shown in the terminal and in the browser, of a file and of a program.
func TestSources(t *testing.T) {
	url := view(t, traces+"holes.trace")
	for _, source := range []string{traces + "holes.trace", url, strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/")} {
		status, out, errs := tool(t, "top", "-json", source)
		require.Zero(t, status, errs)
		var state struct{ Live, Blocks int64 }
		require.NoError(t, json.Unmarshal([]byte(out), &state))
		assert.EqualValues(t, 40<<20, state.Live, source)
		assert.EqualValues(t, 10, state.Blocks, source)
		status, out, errs = tool(t, "top", source)
		require.Zero(t, status, errs)
		assert.Contains(t, out, "40 MiB")
	}
	status, out, errs := tool(t, "view", "-no-browser", url)
	require.Zero(t, status, errs)
	assert.Regexp(t, `^`+url+` is at `+url+`debug/cupool/\n$`, out)
}
