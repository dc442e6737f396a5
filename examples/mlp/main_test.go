package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/snapshot"
)

// asProgram is the variable with which this test's binary is the program.
const asProgram = "MLP_TEST_AS_PROGRAM"

// dataDir has the first 1,000 training and 500 test images, not compressed.
var dataDir string

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	status, err := func() (int, error) {
		var err error
		if dataDir, err = os.MkdirTemp("", "mlp"); err != nil {
			return 0, err
		}
		defer os.RemoveAll(dataDir)
		if err := training.WriteSubset(dataDir, 1000, 500); err != nil {
			return 0, err
		}
		return m.Run(), nil
	}()
	if err != nil {
		log.Fatal(err)
	}
	os.Exit(status)
}

// runMLP runs the program on dataDir, unless args say otherwise, with a small
// network, and returns what it leaves.
func runMLP(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(ctx, append([]string{"-data", dataDir, "-hidden", "24"}, args...), &out, &errs)
	return status, out.String(), errs.String()
}

// lastLine is what -json is about.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

func runReport(t *testing.T, args ...string) report {
	t.Helper()
	status, stdout, stderr := runMLP(t.Context(), append(args, "-json")...)
	if status != training.ExitOK {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	var r report
	if err := json.Unmarshal([]byte(lastLine(stdout)), &r); err != nil {
		t.Fatalf("%v in %q", err, lastLine(stdout))
	}
	return r
}

func TestTrainingLearns(t *testing.T) {
	for optimizer, rate := range map[string]string{"sgd": "0.05", "adam": "0.01"} {
		t.Run(optimizer, func(t *testing.T) {
			r := runReport(t, "-optimizer", optimizer, "-lr", rate, "-batch", "20", "-epochs", "3")
			if r.TestAccuracy < 0.75 {
				t.Errorf("test accuracy %v", r.TestAccuracy)
			}
			if r.Steps != 150 {
				t.Errorf("%d steps, want 150", r.Steps)
			}
			if r.LeakedBlocks != 0 {
				t.Errorf("%d blocks leaked", r.LeakedBlocks)
			}
			if r.DriverAllocsLastEpoch != 0 {
				t.Errorf("%d device allocations in the last epoch", r.DriverAllocsLastEpoch)
			}
			if r.HitRatio < 0.99 {
				t.Errorf("hit ratio %v", r.HitRatio)
			}
			if r.StepMicrosMedian <= 0 || r.PeakLiveBytes <= 0 || r.PeakReservedBytes < r.PeakLiveBytes {
				t.Errorf("implausible: %+v", r)
			}
		})
	}
}

// Where there is nothing to learn, nothing is learned: no label leaks into
// the input.
func TestShuffledLabels(t *testing.T) {
	r := runReport(t, "-shuffle-labels", "-batch", "20", "-epochs", "2")
	if r.TestAccuracy > 0.2 {
		t.Errorf("test accuracy %v with shuffled labels", r.TestAccuracy)
	}
}

func TestSeed(t *testing.T) {
	losses := func(seed string) string {
		status, stdout, stderr := runMLP(t.Context(), "-seed", seed, "-train-samples", "200", "-batch", "20", "-epochs", "2")
		if status != training.ExitOK {
			t.Fatalf("exit status %d: %s", status, stderr)
		}
		var lines []string
		for line := range strings.Lines(stdout) {
			if loss, _, ok := strings.Cut(line, "device"); ok && strings.HasPrefix(line, "epoch") {
				lines = append(lines, loss)
			}
		}
		return strings.Join(lines, "\n")
	}
	first, again, other := losses("7"), losses("7"), losses("8")
	if first != again {
		t.Errorf("two runs of one seed:\n%s\n%s", first, again)
	}
	if first == other {
		t.Errorf("the seed changes nothing:\n%s", first)
	}
}

func TestJSONKeys(t *testing.T) {
	_, stdout, _ := runMLP(t.Context(), "-json", "-train-samples", "20", "-batch", "20", "-epochs", "1")
	var got map[string]any
	if err := json.Unmarshal([]byte(lastLine(stdout)), &got); err != nil {
		t.Fatal(err)
	}
	want := []string{"device", "driver_allocs_first_epoch", "driver_allocs_last_epoch", "gpu_fallback_ops", "hit_ratio", "leaked_blocks",
		"peak_live_bytes", "peak_reserved_bytes", "step_us_median", "steps", "test_accuracy"}
	var keys []string
	for k := range got {
		keys = append(keys, k)
	}
	if slices.Sort(keys); !slices.Equal(keys, want) {
		t.Errorf("keys %v, want %v", keys, want)
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
		"not a number":       {[]string{"-epochs", "many"}, training.ExitUsage, `"many" for flag -epochs`},
		"no epochs":          {[]string{"-epochs", "0"}, training.ExitUsage, "-epochs must be at least 1, not 0"},
		"no batch":           {[]string{"-batch", "-1"}, training.ExitUsage, "-batch must be at least 1, not -1"},
		"negative samples":   {[]string{"-train-samples", "-1"}, training.ExitUsage, "-train-samples must not be negative"},
		"negative shift":     {[]string{"-shift", "-1"}, training.ExitUsage, "-shift must not be negative"},
		"negative rate":      {[]string{"-lr", "-0.1"}, training.ExitUsage, "-lr must be a positive number"},
		"no rate":            {[]string{"-lr", "NaN"}, training.ExitUsage, "-lr must be a positive number"},
		"hidden widths":      {[]string{"-hidden", "512,x"}, training.ExitUsage, `"512,x" for flag -hidden`},
		"graph and shifts":   {[]string{"-graph"}, training.ExitUsage, "-graph needs -shift 0"},
		"prefetch for none":  {[]string{"-prefetch", "-shift", "0"}, training.ExitUsage, "-prefetch is for batches made on the host"},
		"graph of no steps":  {[]string{"-graph", "-shift", "0", "-graph-steps", "0"}, training.ExitUsage, "-graph-steps 0"},
		"graph on the host":  {[]string{"-graph", "-shift", "0"}, training.ExitFailed, "has no graphs: not supported"},
		"unknown optimizer":  {[]string{"-optimizer", "lion"}, training.ExitUsage, `-optimizer is sgd or adam, not "lion"`},
		"argument":           {[]string{"train"}, training.ExitUsage, `unexpected argument "train"`},
		"no directory":       {[]string{"-data", filepath.Join(empty, "no")}, training.ExitFailed, "there is no directory"},
		"empty directory":    {[]string{"-data", empty}, training.ExitFailed, "train-images-idx3-ubyte: no such file"},
		"too many samples":   {[]string{"-train-samples", "1001"}, training.ExitFailed, "-train-samples 1001, but there are 1000"},
		"too large a batch":  {[]string{"-train-samples", "10", "-batch", "11"}, training.ExitFailed, "-batch 11, but there are 10 training images"},
		"unknown device":     {[]string{"-device", "toaster"}, training.ExitFailed, "toaster"},
		"no room for a step": {[]string{"-device", "host:4MiB", "-train-samples", "1000", "-batch", "1000"}, training.ExitFailed, "out of memory"},
		"no room for the network": {[]string{"-device", "host:1MiB", "-hidden", "4096,4096"}, training.ExitFailed,
			"out of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			few := []string{"-train-samples", "20", "-batch", "10", "-epochs", "1"}
			status, _, stderr := runMLP(t.Context(), append(few, c.args...)...)
			if status != c.status {
				t.Errorf("exit status %d, want %d", status, c.status)
			}
			if !strings.HasPrefix(stderr, "mlp: ") || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1+strings.Count(stderr, "\n\t") {
				t.Errorf("error output %q, want one line with %q, and what explains it indented", stderr, c.want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	status, stdout, stderr := runMLP(t.Context(), "-h")
	if status != training.ExitOK || stderr != "" || !strings.Contains(stdout, "-shuffle-labels") {
		t.Errorf("exit status %d, %q, %q", status, stdout, stderr)
	}
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
	ctx, cancel := context.WithCancel(t.Context())
	var stderr bytes.Buffer
	status := run(ctx, []string{"-data", dataDir, "-hidden", "8", "-train-samples", "100", "-batch", "20", "-epochs", "50", "-json"}, &canceller{cancel: cancel}, &stderr)
	if status != training.ExitInterrupted {
		t.Errorf("exit status %d, want %d", status, training.ExitInterrupted)
	}
	if want := "interrupted in epoch 2 after 0 of 5 steps: context canceled; 0 blocks leaked\n"; !strings.HasSuffix(stderr.String(), want) {
		t.Errorf("error output %q, want %q", stderr.String(), want)
	}
}

// The built-in data set is the default.
func TestDefaultData(t *testing.T) {
	r := runReport(t, "-data", "", "-batch", "5000", "-epochs", "1", "-hidden", "none")
	if r.Steps != 2 {
		t.Errorf("%d steps of 5,000 images", r.Steps)
	}
	if right := r.TestAccuracy * 2000; math.Abs(right-math.Round(right)) > 1e-9 {
		t.Errorf("accuracy %v is not of 2,000 images", r.TestAccuracy)
	}
}

// A plan changes where tensors are and nothing else.
func TestPlan(t *testing.T) {
	args := []string{"-epochs", "2", "-batch", "50", "-json"}
	want := runReport(t, args...)
	got := runReport(t, append(args, "-plan")...)
	if got.TestAccuracy != want.TestAccuracy || got.Steps != want.Steps {
		t.Errorf("with a plan: %+v; without: %+v", got, want)
	}
	if got.PlannedSteps < int64(got.Steps)/2 || got.PlannedHits <= got.PlannedSteps || got.PlanBytes <= 0 {
		t.Errorf("%d of %d steps were planned, %d allocations, %d bytes", got.PlannedSteps, got.Steps, got.PlannedHits, got.PlanBytes)
	}
	if got.LeakedBlocks != 0 || got.HitRatio < want.HitRatio-0.01 {
		t.Errorf("%d blocks leaked, hit ratio %v (%v without)", got.LeakedBlocks, got.HitRatio, want.HitRatio)
	}
}

// Prefetched batches are the same batches, also when the training is cut off
// among them.
func TestPrefetch(t *testing.T) {
	epochs := func(args ...string) string {
		status, stdout, stderr := runMLP(t.Context(), append(args, "-train-samples", "200", "-batch", "20", "-epochs", "2")...)
		if status != training.ExitOK {
			t.Fatalf("exit status %d: %s", status, stderr)
		}
		var losses []string
		for line := range strings.Lines(stdout) {
			if loss, _, ok := strings.Cut(line, "device"); ok && strings.HasPrefix(line, "epoch") {
				losses = append(losses, loss)
			}
		}
		return strings.Join(losses, "\n")
	}
	if plain, ahead := epochs(), epochs("-prefetch"); plain != ahead {
		t.Errorf("without -prefetch\n%s\nand with it\n%s", plain, ahead)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var stderr bytes.Buffer
	status := run(ctx, []string{"-data", dataDir, "-hidden", "8", "-train-samples", "100", "-batch", "20", "-epochs", "50", "-prefetch"}, &canceller{cancel: cancel}, &stderr)
	if status != training.ExitInterrupted || !strings.Contains(stderr.String(), "; 0 blocks leaked") {
		t.Errorf("exit status %d, %s", status, stderr.String())
	}
}

// onEpoch calls a function when the first line beginning with "epoch" is written.
type onEpoch struct {
	bytes.Buffer
	call func()
}

func (w *onEpoch) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("epoch")) && w.call != nil {
		w.call()
		w.call = nil
	}
	return w.Buffer.Write(p)
}

// While it trains a page shows what the tensors take and which lines made them, and
// at the end files do. Standard output is as without.
func TestObserved(t *testing.T) {
	snapshotFile, profileFile := filepath.Join(t.TempDir(), "a.pickle"), filepath.Join(t.TempDir(), "a.pb.gz")
	var stderr bytes.Buffer
	var onPage snapshot.Snapshot
	stdout := &onEpoch{call: func() {
		url := regexp.MustCompile(`^the pool is at (http://\S+)\n$`).FindStringSubmatch(stderr.String())
		require.NotNil(t, url, stderr.String())
		r, err := http.Get(url[1] + "snapshot")
		require.NoError(t, err)
		defer r.Body.Close()
		require.NoError(t, json.NewDecoder(r.Body).Decode(&onPage))
	}}
	status := run(t.Context(), []string{"-data", dataDir, "-hidden", "24", "-epochs", "2", "-json",
		"-http", "localhost:0", "-snapshot", snapshotFile, "-profile", profileFile}, stdout, &stderr)
	require.Equal(t, training.ExitOK, status, stderr.String())
	require.Contains(t, onPage.Layout(), "[Live ")
	require.True(t, json.Valid([]byte(lastLine(stdout.String()))))

	f, err := os.Open(snapshotFile)
	require.NoError(t, err)
	defer f.Close()
	atEnd, err := snapshot.Read(f)
	require.NoError(t, err)
	for _, s := range []snapshot.Snapshot{onPage, atEnd[0]} {
		require.Contains(t, functions(s), "main.newMLP", "the weights are there")
	}
	info, err := os.Stat(profileFile)
	require.NoError(t, err)
	require.Positive(t, info.Size())
}

// functions returns those that stacks of live blocks name, without the path of their
// package.
func functions(s snapshot.Snapshot) (names []string) {
	for _, seg := range s.Segments {
		for _, b := range seg.Blocks {
			for _, f := range b.Stack {
				names = append(names, "main"+filepath.Ext(f.Function))
			}
		}
	}
	return names
}
