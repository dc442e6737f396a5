package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/examples/internal/training"
)

// sumOrder is how far losses and parameters may be apart because ranks add up
// float32 in another order, after a few epochs.
const sumOrder = 2e-6

// trained is what a training leaves: the losses of its epochs, the accuracies,
// and the parameters.
type trained struct{ losses, accuracies, params []float64 }

// trainRanks trains as flags say, with every rank, and returns what the first
// leaves. All have to leave the same, to the bit.
func trainRanks(t *testing.T, flags string) (first trained) {
	t.Helper()
	all, err := tryRanks(t, flags)
	require.NoError(t, err, flags)
	for i := range all {
		require.Equal(t, all[0], all[i], "%s: rank %d", flags, i)
	}
	return all[0]
}

func tryRanks(t *testing.T, flags string) ([]trained, error) {
	t.Helper()
	args := append([]string{"-data", dataDir, "-hidden", "24,12", "-train-samples", "96", "-batch", "16", "-epochs", "3"}, strings.Fields(flags)...)
	o, err := parse(args, io.Discard)
	require.NoError(t, err, flags)
	train, test, err := training.LoadData(&o.Options)
	require.NoError(t, err)
	test = test.Take(48)
	ranks := o.ranks(io.Discard, io.Discard)
	all := make([]trained, len(ranks))
	return all, together(t.Context(), ranks, func(ctx context.Context, r *rank) (err error) {
		tr, err := r.trainer(train, test)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, tr.free()) }()
		epochs, err := r.runEpochs(ctx, tr)
		return errors.Join(err, all[r.rank].keep(tr, epochs))
	})
}

// keep notes what a trainer has.
func (a *trained) keep(t *trainer, epochs []epoch) (err error) {
	defer catch(&err)
	for _, e := range epochs {
		a.losses, a.accuracies = append(a.losses, e.loss), append(a.accuracies, e.accuracy)
	}
	for _, p := range t.net.params() {
		for _, v := range must(t.eng.ToHost(p.value)).Data().([]float32) {
			a.params = append(a.params, float64(v))
		}
	}
	return nil
}

// Ranks learn what one learns with the same batch, whatever their number.
func TestRanks(t *testing.T) {
	noLauncher(t)
	for _, flags := range []string{"-shift 0", "-shift 1", "-shift 1 -prefetch", "-plan", "-shift 0 -optimizer adam -lr 0.002", "-shift 0 -bucket 1"} {
		t.Run(flags, func(t *testing.T) {
			want := trainRanks(t, flags)
			require.Greater(t, want.losses[0]-want.losses[2], 0.1, "it learns")
			for _, n := range []int{1, 2, 4, 8} {
				requireClose(t, want, trainRanks(t, fmt.Sprint(flags, " -gpus ", n)), n)
			}
		})
	}
}

func requireClose(t *testing.T, want, got trained, n int) {
	t.Helper()
	require.InDeltaSlice(t, want.losses, got.losses, sumOrder, "%d ranks: losses", n)
	require.InDeltaSlice(t, want.params, got.params, sumOrder, "%d ranks: parameters", n)
	require.InDeltaSlice(t, want.accuracies, got.accuracies, 0.021, "%d ranks: accuracies, an image of 48 apart", n)
}

// A rank that fails ends those of its process, and its error is the one that
// counts.
func TestRankFails(t *testing.T) {
	noLauncher(t)
	status, _, stderr := runMLP(t.Context(), "-gpus", "2", "-device", "host:5MiB", "-train-samples", "1000", "-batch", "1000", "-epochs", "2")
	require.Equal(t, training.ExitFailed, status, stderr)
	require.Regexp(t, `^mlp: rank \d: .*out of memory`, stderr)
}

// Ctrl-C ends all ranks of a process.
func TestInterruptRanks(t *testing.T) {
	noLauncher(t)
	ctx, cancel := context.WithCancel(t.Context())
	var stderr bytes.Buffer
	status := run(ctx, []string{"-data", dataDir, "-hidden", "8", "-train-samples", "100", "-batch", "20", "-epochs", "50", "-gpus", "4"}, &canceller{cancel: cancel}, &stderr)
	require.Equal(t, training.ExitInterrupted, status, stderr.String())
	require.Regexp(t, `interrupted in epoch \d+ after \d of 5 steps: context canceled; 0 blocks leaked\n$`, stderr.String())
}
