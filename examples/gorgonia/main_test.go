package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/snapshot"
)

// runSmall runs the program on a few images, unless args say otherwise, and
// returns what it leaves.
func runSmall(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(ctx, append([]string{"-train-samples", "400", "-batch", "20", "-epochs", "2"}, args...), &out, &errs)
	return status, out.String(), errs.String()
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

func runReport(t *testing.T, args ...string) (r report) {
	t.Helper()
	status, stdout, stderr := runSmall(t.Context(), append(args, "-json")...)
	require.Equal(t, training.ExitOK, status, stderr)
	require.NoError(t, json.Unmarshal([]byte(lastLine(stdout)), &r))
	return r
}

// onOneProcessor keeps the runtime from making threads during a test, each of
// which is an object of 5 KiB in Go's heap to who weighs the pool's share.
func onOneProcessor(t *testing.T) {
	old := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(old) })
}

// Every machine learns, with memory that is constant from step to step and
// comes from where it should.
func TestTrainingLearns(t *testing.T) {
	onOneProcessor(t)
	for _, c := range []struct {
		vm, optimizer string
		share         float64 // at least
	}{
		{"pool", "sgd", 0.99},
		{"pool", "adam", 0.99},
		{"tape", "sgd", 0.9},
		{"tape", "adam", 0.9},
		{"stock", "sgd", 0},
	} {
		t.Run(c.vm+" "+c.optimizer, func(t *testing.T) {
			r := runReport(t, "-vm", c.vm, "-optimizer", c.optimizer, "-epochs", "3")
			require.Greater(t, r.TestAccuracy, 0.7)
			require.Less(t, r.LossLast, r.LossFirst/2)
			require.Equal(t, 60, r.Steps)
			require.GreaterOrEqual(t, r.PoolByteShare, c.share)
			require.Equal(t, c.vm == "stock", r.PoolByteShare == 0)
			require.Zero(t, r.LeakedBlocks)
			require.Positive(t, r.StepMicrosMedian)
			require.GreaterOrEqual(t, r.PeakReservedBytes, r.PeakLiveBytes)
			if c.vm != "tape" || c.optimizer != "adam" { // whose moments are a step's more from the second step on
				require.Equal(t, r.LiveBytesFirst, r.LiveBytesLast)
			}
		})
	}
}

// The same weights and batches give the same losses in every machine, and those
// of examples/mlp.
func TestMachinesAgree(t *testing.T) {
	losses := func(args ...string) (lines string) {
		status, stdout, stderr := runSmall(t.Context(), args...)
		require.Equal(t, training.ExitOK, status, stderr)
		for line := range strings.Lines(stdout) {
			if loss, _, ok := strings.Cut(line, "live"); ok && strings.HasPrefix(line, "epoch") {
				lines += loss + "\n"
			}
		}
		return lines
	}
	require.Equal(t, losses("-vm", "stock"), losses("-vm", "tape"))
	require.Equal(t, losses("-shift", "0"), losses("-shift", "0", "-seed", "1"))
	require.NotEqual(t, losses(), losses("-seed", "2"))
	adam := losses("-optimizer", "adam")
	require.Equal(t, losses("-optimizer", "adam", "-vm", "stock"), adam, "to four digits")
}

func TestCompare(t *testing.T) {
	onOneProcessor(t)
	alone := runReport(t)
	r := runReport(t, "-compare")
	require.Positive(t, r.TapeStepMicrosMedian)
	require.Greater(t, r.PoolByteShare, 0.99)
	require.Equal(t, alone.LossLast, r.LossLast, "the twin changes nothing")
	require.Equal(t, alone.TestAccuracy, r.TestAccuracy)
	require.Equal(t, alone.LiveBytesLast, r.LiveBytesLast)
}

// Gorgonia's convolutional network: where the share of the pool is smaller, as
// Gorgonia computes most of it by itself.
func TestConvnet(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	dir := t.TempDir()
	require.NoError(t, training.WriteSubset(dir, 40, 20))
	r := runReport(t, "-net", "convnet", "-data", dir, "-train-samples", "40", "-batch", "10", "-epochs", "1")
	require.Equal(t, 4, r.Steps)
	require.Equal(t, "convnet", r.Net)
	require.NotEqual(t, r.LossFirst, r.LossLast)
	require.Equal(t, r.LiveBytesFirst, r.LiveBytesLast)
	require.Zero(t, r.LeakedBlocks)
	require.Positive(t, r.ForeignOps["gorgonia.im2colOp"])
}

func TestJSONKeys(t *testing.T) {
	_, stdout, _ := runSmall(t.Context(), "-json", "-train-samples", "20", "-epochs", "1")
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(lastLine(stdout)), &got))
	for _, key := range []string{"pool_byte_share", "live_bytes_first", "live_bytes_last", "peak_live_bytes", "loss_first", "loss_last", "test_accuracy", "step_us_median"} {
		require.Contains(t, got, key)
	}
}

func TestErrors(t *testing.T) {
	empty := t.TempDir()
	for name, c := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"unknown flag":       {[]string{"-colour"}, training.ExitUsage, "-colour"},
		"unknown machine":    {[]string{"-vm", "lisp"}, training.ExitUsage, `-vm is pool, tape or stock, not "lisp"`},
		"unknown network":    {[]string{"-net", "gan"}, training.ExitUsage, `-net is mlp`},
		"unknown optimizer":  {[]string{"-optimizer", "lion"}, training.ExitUsage, `-optimizer is sgd or adam, not "lion"`},
		"convnet's layers":   {[]string{"-net", "convnet", "-hidden", "3"}, training.ExitUsage, "-net convnet takes no -hidden"},
		"stock with itself":  {[]string{"-vm", "stock", "-compare"}, training.ExitUsage, "-compare compares other machines"},
		"graphs of another":  {[]string{"-vm", "tape", "-graph"}, training.ExitUsage, "-graph needs -vm pool"},
		"no batch":           {[]string{"-batch", "0"}, training.ExitUsage, "-batch must be at least 1, not 0"},
		"argument":           {[]string{"train"}, training.ExitUsage, `unexpected argument "train"`},
		"no directory":       {[]string{"-data", filepath.Join(empty, "no")}, training.ExitFailed, "there is no directory"},
		"empty directory":    {[]string{"-data", empty}, training.ExitFailed, "train-images-idx3-ubyte: no such file"},
		"unknown device":     {[]string{"-device", "toaster"}, training.ExitFailed, "toaster"},
		"no room for a step": {[]string{"-device", "host:4MiB", "-batch", "400"}, training.ExitFailed, "out of memory"},
		"no room for the network": {[]string{"-device", "host:1MiB", "-hidden", "4096,4096"}, training.ExitFailed,
			"out of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, stderr := runSmall(t.Context(), c.args...)
			require.Equal(t, c.status, status)
			require.True(t, strings.HasPrefix(stderr, "gorgonia: "), stderr)
			require.Contains(t, stderr, c.want)
			require.Equal(t, 1, strings.Count(stderr, "\n")-strings.Count(stderr, "\n\t"), "one line, and what explains it indented: %s", stderr)
		})
	}
}

// The files are written while the network is still there.
func TestObserved(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.pickle")
	status, _, stderr := runSmall(t.Context(), "-epochs", "1", "-http", "localhost:0", "-snapshot", file)
	require.Equal(t, training.ExitOK, status, stderr)
	require.Contains(t, stderr, "the pool is at http://")
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	pools, err := snapshot.Read(f)
	require.NoError(t, err)
	require.Contains(t, pools[0].Layout(), "[Live ")
	require.NotEmpty(t, pools[0].Events)
}

func TestHelp(t *testing.T) {
	status, stdout, stderr := runSmall(t.Context(), "-h")
	require.Equal(t, training.ExitOK, status)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "-shuffle-labels")
	require.Contains(t, stdout, "-vm")
}

// canceller ends a context when a line beginning with "epoch" is written.
type canceller struct {
	bytes.Buffer
	cancel context.CancelFunc
}

func (c *canceller) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("epoch")) {
		c.cancel()
	}
	return c.Buffer.Write(p)
}

func TestInterrupt(t *testing.T) {
	for _, vm := range []string{"pool", "tape", "stock"} {
		ctx, cancel := context.WithCancel(t.Context())
		var stderr bytes.Buffer
		status := run(ctx, []string{"-vm", vm, "-train-samples", "100", "-batch", "20", "-epochs", "50"}, &canceller{cancel: cancel}, &stderr)
		require.Equal(t, training.ExitInterrupted, status)
		require.Contains(t, stderr.String(), "interrupted in epoch 2 after 0 of 5 steps: context canceled; 0 blocks leaked\n")
	}
}
