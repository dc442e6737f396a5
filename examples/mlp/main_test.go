package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/snapshot"
)

func TestMain(m *testing.M) {
	testkit.AsProgram(main)
	if os.Getenv("FAKECUDA_DEVICES") == "" {
		os.Setenv("FAKECUDA_DEVICES", "8") // of the stand-in driver
	}
	os.Exit(m.Run())
}

// few is a training that the stand-in's kernels, which the CPU runs, take seconds
// for.
const few = "-train-samples 64 -test-samples 48 -batch 16 -epochs 3 -hidden 8 "

// program runs the program with few samples, unless args say otherwise, and returns
// what it leaves.
func program(ctx context.Context, args string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(ctx, strings.Fields(few+args), &out, &errs)
	return status, out.String(), errs.String()
}

// losses are those of epochs, with the accuracies, as they were printed.
type losses struct{ loss, accuracy []float64 }

// trained returns what a training that leaves nothing behind prints.
func trained(t *testing.T, args string) (losses, report) {
	t.Helper()
	status, stdout, stderr := program(t.Context(), args+" -json")
	require.Equal(t, training.ExitOK, status, "%s: %s", args, stderr)
	return printed(t, stdout)
}

func printed(t *testing.T, stdout string) (ls losses, r report) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &r))
	require.Zero(t, r.LeakedBlocks)
	for _, line := range lines {
		var i, n int
		var loss, accuracy float64
		if got, _ := fmt.Sscanf(line, "epoch %d/%d loss %f test accuracy %f", &i, &n, &loss, &accuracy); got == 4 {
			ls.loss, ls.accuracy = append(ls.loss, loss), append(ls.accuracy, accuracy)
		}
	}
	return ls, r
}

func TestTrainingLearns(t *testing.T) {
	for _, flags := range []string{"-lr 0.05", "-optimizer adam -lr 0.01", "-shift 0 -hidden none", "-lr 0.05 -data ../../testdata/mnist"} {
		t.Run(flags, func(t *testing.T) {
			args := "-train-samples 2000 -test-samples 500 -batch 20 -hidden 24 " + flags
			ls, r := trained(t, args)
			require.Greater(t, r.TestAccuracy, 0.75)
			require.Equal(t, 300, r.Steps)
			require.Zero(t, r.DriverAllocsLastEpoch)
			require.Greater(t, r.HitRatio, 0.99)
			again, _ := trained(t, args)
			require.Equal(t, ls, again)
			other, _ := trained(t, args+" -seed 2")
			require.NotEqual(t, ls, other)
		})
	}
}

// Scripts read these.
func TestJSONKeys(t *testing.T) {
	keys := func(args string) (keys []string) {
		_, stdout, _ := program(t.Context(), args+" -json -epochs 1")
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &got))
		for k := range got {
			keys = append(keys, k)
		}
		return keys
	}
	want := []string{"device", "driver_allocs_first_epoch", "driver_allocs_last_epoch", "gpu_fallback_ops", "hit_ratio", "leaked_blocks",
		"peak_live_bytes", "peak_reserved_bytes", "step_us_median", "steps", "test_accuracy"}
	require.ElementsMatch(t, want, keys(""))
	require.ElementsMatch(t, append(want, "group"), keys("-gpus 2"))
}

// What is wrong with the command line, or goes wrong, is one line.
func TestErrors(t *testing.T) {
	for args, want := range map[string]struct {
		status int
		text   string
	}{
		"-colour":                          {training.ExitUsage, "-colour"},
		"train":                            {training.ExitUsage, `unexpected argument "train"`},
		"-epochs many":                     {training.ExitUsage, `"many" for flag -epochs`},
		"-epochs -1":                       {training.ExitUsage, "-epochs must be at least 1, not -1"},
		"-batch 0":                         {training.ExitUsage, "-batch must be at least 1, not 0"},
		"-train-samples -1":                {training.ExitUsage, "must not be negative"},
		"-shift -1":                        {training.ExitUsage, "-shift must be from 0 to 1000, not -1"},
		"-shift 5000000000000000000":       {training.ExitUsage, "-shift must be from 0 to 1000"},
		"-lr -0.1":                         {training.ExitUsage, "-lr must be a positive number"},
		"-lr NaN":                          {training.ExitUsage, "-lr must be a positive number"},
		"-hidden 0":                        {training.ExitUsage, `"0" for flag -hidden`},
		"-hidden 512,x":                    {training.ExitUsage, `"512,x" for flag -hidden`},
		"-hidden 100000000000":             {training.ExitUsage, "expected numbers from 1 to 16384"},
		"-optimizer lion":                  {training.ExitUsage, `-optimizer is sgd or adam, not "lion"`},
		"-graph -shift 0":                  {training.ExitUsage, "-graph needs -device cuda, and -shift 0"},
		"-graph -device cuda":              {training.ExitUsage, "-graph needs -device cuda, and -shift 0"},
		"-gpus -1":                         {training.ExitUsage, "must not be negative"},
		"-gpus 9":                          {training.ExitUsage, "-batch 16 cannot be split among 9 ranks: make it a multiple of 9"},
		"-gpus 65536":                      {training.ExitUsage, "cannot be split"},
		"-gpus 65537":                      {training.ExitUsage, "must come to at most 65536 ranks"},
		"-gpus 2 -nodes 32769":             {training.ExitUsage, "must come to at most 65536 ranks"},
		"-nodes 65537 -rank 0":             {training.ExitUsage, "must come to at most 65536 ranks"},
		"-nodes -1":                        {training.ExitUsage, "must not be negative"},
		"-bucket -1":                       {training.ExitUsage, "must not be negative"},
		"-rank 1":                          {training.ExitUsage, "-nodes says how many"},
		"-rendezvous a:1":                  {training.ExitUsage, "-nodes says how many"},
		"-nodes 2":                         {training.ExitUsage, "needs a -rank from 0 to 1"},
		"-nodes 2 -rank 2":                 {training.ExitUsage, "needs a -rank from 0 to 1"},
		"-nodes 2 -rank 0":                 {training.ExitUsage, "-nodes needs -rendezvous HOST:PORT"},
		"-nodes 2 -rank 0 -rendezvous a:1": {training.ExitUsage, "several machines need -device cuda"},
		"-data /nowhere":                   {training.ExitFailed, "there is no directory"},
		"-data ../mlp":                     {training.ExitFailed, "train-images-idx3-ubyte: no such file"},
		"-train-samples 10001":             {training.ExitFailed, "-train-samples 10001, but there are 10000"},
		"-batch 65":                        {training.ExitFailed, "-batch 65, but there are 64 training images"},
		"-device nonsense":                 {training.ExitFailed, "nonsense"},
		"-device cuda:x -gpus 2":           {training.ExitFailed, "cuda:x"},
		"-device cuda:9999":                {training.ExitFailed, "cuda:9999"},
		"-http nowhere":                    {training.ExitFailed, "-http nowhere"},
		"-profile /nowhere/at/all":         {training.ExitFailed, "/nowhere/at/all"},
		"-device host:4MiB -train-samples 2000 -batch 2000":         {training.ExitFailed, "out of memory"},
		"-device host:1MiB -hidden 4096,4096":                       {training.ExitFailed, "out of memory"},
		"-device host:3MiB -gpus 2 -train-samples 2000 -batch 2000": {training.ExitFailed, "mlp: rank "},
	} {
		t.Run(args, func(t *testing.T) {
			status, _, stderr := program(t.Context(), args)
			require.Equal(t, want.status, status, stderr)
			require.True(t, strings.HasPrefix(stderr, "mlp: "), stderr)
			require.Contains(t, stderr, want.text)
			require.Equal(t, 1, strings.Count(stderr, "\n")-strings.Count(stderr, "\n\t"), "one line, and what explains it indented: %s", stderr)
		})
	}
}

func TestHelp(t *testing.T) {
	status, stdout, stderr := program(t.Context(), "-h")
	require.Equal(t, training.ExitOK, status)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "-rendezvous")
}

// What a launcher tells a process makes it a rank, if no flag does.
func TestLaunched(t *testing.T) {
	const torchrun = "RANK=5 WORLD_SIZE=20 LOCAL_RANK=1 MASTER_ADDR=first MASTER_PORT=29500"
	for name, c := range map[string]struct{ env, flags, rendezvous, device, err string }{
		"torchrun":           {env: torchrun, flags: "-device cuda -batch 20", rendezvous: "first:29500", device: "cuda:1"},
		"a device":           {env: torchrun, flags: "-device cuda:0,managed -batch 20", rendezvous: "first:29500", device: "cuda:0,managed"},
		"another rendezvous": {env: torchrun, flags: "-device cuda -batch 20 -rendezvous other:1", rendezvous: "other:1", device: "cuda:1"},
		"Slurm": {env: "SLURM_PROCID=5 SLURM_NTASKS=20 SLURM_LOCALID=3 MASTER_ADDR=first MASTER_PORT=1",
			flags: "-device cuda -batch 20", rendezvous: "first:1", device: "cuda:3"},
		"no number":  {env: torchrun + " RANK=first", err: "RANK"},
		"no address": {env: torchrun + " MASTER_PORT=", err: "MASTER_PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			for v := range strings.FieldsSeq(c.env) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			o, err := parse(strings.Fields(c.flags), io.Discard)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, share{5, 20}, o.share(0))
			require.Equal(t, c.rendezvous, o.rendezvous)
			require.Equal(t, c.device, o.deviceOf(0))

			o, err = parse([]string{"-gpus", "2", "-device", "cuda"}, io.Discard)
			require.NoError(t, err, "flags go first")
			require.Equal(t, share{1, 2}, o.share(1))
		})
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

// Ctrl-C ends a training of any number of ranks, which gives everything back.
func TestInterrupt(t *testing.T) {
	for _, flags := range []string{"", "-shift 0", "-gpus 4"} {
		ctx, cancel := context.WithCancel(t.Context())
		var stderr bytes.Buffer
		status := run(ctx, strings.Fields(few+"-epochs 50 "+flags), &onEpoch{call: cancel}, &stderr)
		require.Equal(t, training.ExitInterrupted, status, stderr.String())
		require.Regexp(t, `^mlp: (rank \d: )?interrupted in epoch \d after \d of 4 steps: context canceled\n$`, stderr.String())
	}
}

// While it trains, a page shows what the tensors take and which lines made them,
// and at the end a file does. Standard output is as without.
func TestObserved(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.pickle")
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
	status := run(t.Context(), strings.Fields(few+"-json -http localhost:0 -snapshot "+file), stdout, &stderr)
	require.Equal(t, training.ExitOK, status, stderr.String())
	printed(t, stdout.String())
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	atEnd, err := snapshot.Read(f)
	require.NoError(t, err)
	for _, s := range []snapshot.Snapshot{onPage, atEnd[0]} {
		require.Contains(t, lines(s), "model.go", "the weights are there")
	}
}

// A training whose files cannot be written ends with its report all the same.
func TestUnwritten(t *testing.T) {
	status, stdout, stderr := program(t.Context(), few+"-json -snapshot /nowhere/at/all -profile /nor/here")
	require.Equal(t, training.ExitFailed, status)
	require.Contains(t, stderr, "/nowhere/at/all")
	require.Contains(t, stderr, "/nor/here")
	printed(t, stdout)
}

// lines are the files that stacks of live blocks name.
func lines(s snapshot.Snapshot) (files []string) {
	for _, seg := range s.Segments {
		for _, b := range seg.Blocks {
			for _, f := range b.Stack {
				files = append(files, filepath.Base(f.File))
			}
		}
	}
	return files
}
