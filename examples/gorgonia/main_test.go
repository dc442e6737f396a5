package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// program runs the program with a few samples, unless args say otherwise, and
// returns what it leaves.
func program(ctx context.Context, args string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	few := "-train-samples 20 -test-samples 20 -batch 5 -epochs 2 -hidden 12 "
	status = run(ctx, strings.Fields(few+args), &out, &errs)
	return status, out.String(), errs.String()
}

// trained is the report of a training that leaves nothing behind.
func trained(t *testing.T, args string) (r report) {
	t.Helper()
	status, stdout, stderr := program(t.Context(), args+" -json")
	require.Equal(t, training.ExitOK, status, stderr)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &r))
	require.Zero(t, r.LeakedBlocks)
	return r
}

// Every network learns, and with the same numbers in Gorgonia's own machine,
// which -compare runs beside ours. Gorgonia's convolutional example has random
// numbers in it (dropout).
func TestNetsLearn(t *testing.T) {
	for name, args := range map[string]string{
		"mlp":     "-optimizer adam -epochs 4",
		"sgd":     "-optimizer sgd -epochs 4",
		"shifts":  "-shift 1 -optimizer adam -epochs 4",
		"resnet":  "-net resnet -optimizer adam -epochs 4 -train-samples 10 -test-samples 10",
		"lstm":    "-net rnn -steps 6 -train-samples 100 -epochs 8",
		"gru":     "-net rnn -cell gru -steps 6 -train-samples 100 -epochs 8",
		"convnet": "-net convnet -lr 0.0001 -epochs 15 -train-samples 10 -batch 10 -test-samples 10",
	} {
		t.Run(name, func(t *testing.T) {
			r := trained(t, "-shift 0 -compare "+args)
			require.Less(t, r.LossLast, 0.9*r.LossFirst)
			require.Positive(t, r.TapeStepMicrosMedian)
			if name != "convnet" {
				require.InEpsilon(t, float64(r.TapeLossLast), float64(r.LossLast), 1e-3)
			}
		})
	}
}

// A GPU learns what the host learns, from the same seed, also where steps run as
// CUDA graphs, and leaves nothing to the host.
func TestNetsOnGPU(t *testing.T) {
	gputest.Need(t)
	for name, args := range map[string]string{
		"mlp":     "-optimizer adam",
		"shifts":  "-shift 1",
		"one row": "-batch 1",
		"lstm":    "-net rnn -steps 4",
		"gru":     "-net rnn -cell gru -steps 4",
		"resnet":  "-net resnet -optimizer adam -lr 0.001 -train-samples 4 -batch 2 -test-samples 2 -epochs 1",
		"convnet": "-net convnet -train-samples 4 -batch 2 -test-samples 2 -epochs 1",
	} {
		t.Run(name, func(t *testing.T) {
			args := "-shift 0 " + args
			host, gpu := trained(t, args), trained(t, args+" -device cuda -graph")
			if gpu.FallbackOps > 0 && strings.Contains(gpu.Device, "fakecuda") {
				t.Skip("there are no kernels: the stand-in driver was built without a C++ compiler")
			}
			require.EqualValues(t, gpu.Steps-1, gpu.GraphSteps, gpu.GraphError)
			all := []report{gpu}
			if name != "resnet" && name != "convnet" { // which take the stand-in's kernels half a minute
				all = append(all, trained(t, args+" -device cuda"))
			}
			for _, r := range all {
				require.Zero(t, r.FallbackOps)
				require.Empty(t, r.ForeignOps)
				if name != "convnet" {
					require.InDelta(t, float64(host.LossFirst), float64(r.LossFirst), 1e-4)
					require.InDelta(t, float64(host.LossLast), float64(r.LossLast), 1e-2)
				}
			}
		})
	}
	t.Run("managed memory", func(t *testing.T) {
		r := trained(t, "-device cuda:0,managed -compare -optimizer adam")
		require.InEpsilon(t, float64(r.TapeLossLast), float64(r.LossLast), 1e-3)
	})
}

// A network that is tested has the weights of the one that is trained, and the
// running statistics that it learned.
func TestTestedNetwork(t *testing.T) {
	o, err := parse([]string{"-net", "resnet", "-batch", "2"}, t.Output())
	require.NoError(t, err)
	trained, err := newNetwork(o, o.Random(training.ForWeights), nil)
	require.NoError(t, err)
	tested, err := newNetwork(o, nil, trained)
	require.NoError(t, err)
	mean, variance := trained.norms[3].Stats()
	require.NoError(t, mean.Memset(float32(2)))
	require.NoError(t, variance.Memset(float32(3)))
	require.NoError(t, tested.learned(trained))
	mean, variance = tested.norms[3].Stats()
	require.Subset(t, []float32{2}, mean.Data())
	require.Subset(t, []float32{3}, variance.Data())
	require.Equal(t, trained.weights[0].Value(), tested.weights[0].Value())
}

func TestErrors(t *testing.T) {
	for args, want := range map[string]struct {
		status int
		text   string
	}{
		"-colour":                         {training.ExitUsage, "-colour"},
		"-net gan":                        {training.ExitUsage, `-net is mlp, convnet, resnet or rnn, not "gan"`},
		"-cell gru":                       {training.ExitUsage, "-cell and -steps are for -net rnn"},
		"-net convnet -steps 5":           {training.ExitUsage, "-cell and -steps are for -net rnn"},
		"-net rnn -cell rnn":              {training.ExitUsage, "-cell is lstm or gru"},
		"-net rnn -steps 1":               {training.ExitUsage, "-steps is 2 to 255"},
		"-net rnn -steps 256":             {training.ExitUsage, "-steps is 2 to 255"},
		"-net rnn -hidden 8,8":            {training.ExitUsage, "one -hidden layer"},
		"-net rnn -data x":                {training.ExitUsage, "-data is for images"},
		"-net rnn -batch 300":             {training.ExitFailed, "too few for a batch of 300"},
		"-device host:1MiB -hidden 4096":  {training.ExitFailed, "out of memory"},
		"-device host:64KiB -compare":     {training.ExitFailed, "out of memory"},
		"-snapshot /nowhere/at/all/file":  {training.ExitFailed, "/nowhere"},
		"-net convnet -device host:64MiB": {training.ExitOK, ""},
	} {
		t.Run(args, func(t *testing.T) {
			status, stdout, stderr := program(t.Context(), args+" -epochs 1")
			require.Equal(t, want.status, status, stderr)
			if strings.Contains(args, "-snapshot") {
				require.Contains(t, stdout, " in the last\n", "the report")
			}
			require.Contains(t, stderr, want.text)
			require.Equal(t, min(status, 1), strings.Count(stderr, "\n")-strings.Count(stderr, "\n\t"), "one line, and what explains it indented: %s", stderr)
		})
	}
}

// A training that learned nothing ends with its report, too: JSON has no NaN.
func TestLossIsNoNumber(t *testing.T) {
	status, stdout, stderr := program(t.Context(), "-json -shift 0 -lr 1e30 -epochs 1")
	require.Equal(t, training.ExitOK, status, stderr)
	require.Contains(t, stdout, "NaN in the last\n")
	require.Contains(t, stdout, `"loss_last":null`)
}

// Gorgonia's machine does not run where the CPU cannot touch memory.
func TestCompareOnGPU(t *testing.T) {
	gputest.Need(t)
	status, _, stderr := program(t.Context(), "-compare -device cuda")
	require.Equal(t, training.ExitFailed, status)
	require.Contains(t, stderr, "which cannot touch the memory of cuda:0")
}

// Ctrl-C ends a training, which gives everything back.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	status, _, stderr := program(ctx, "-compare")
	require.Equal(t, training.ExitInterrupted, status)
	require.Equal(t, "gorgonia: interrupted in epoch 1 after 0 of 4 steps: context canceled\n", stderr)
}

// TestReportIsTheSame: operations are printed in the same order each time.
func TestReportIsTheSame(t *testing.T) {
	r := report{ForeignOps: map[string]int64{}}
	want := ""
	for op := 'a'; op <= 'z'; op++ {
		r.ForeignOps[string(op)] = 2
		want += "by Gorgonia     " + string(op) + ", 2 times, on the CPU\n"
	}
	var out bytes.Buffer
	r.Print(&out)
	require.True(t, strings.HasSuffix(out.String(), want), out.String())
}
