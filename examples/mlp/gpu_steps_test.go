//go:build gpu

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/internal/fakecuda"
	"gorgonia.org/tensor"
)

// The first hundred steps on a GPU have the losses that they have on the host,
// by SGD: Adam makes large steps of small differences, as large rates do.
func TestFirstStepsOnGPU(t *testing.T) {
	flags := "-shift 0 -train-samples 1000 -epochs 10 -batch 100 -hidden 512,256 -lr 0.05"
	if fakecuda.Loaded() {
		flags = "-shift 0 -train-samples 100 -epochs 10 -batch 10 -hidden 24,12 -lr 0.05"
	}
	host, gpu := stepLosses(t, "host", flags), stepLosses(t, "cuda", flags)
	if len(host) != 100 || len(gpu) != 100 {
		t.Fatalf("%d and %d steps", len(host), len(gpu))
	}
	var most float64
	for i := range host {
		diff := math.Abs(host[i] - gpu[i])
		if most = max(most, diff); !(diff < 1e-3) {
			t.Errorf("step %d: loss %v on the host and %v on the GPU", i+1, host[i], gpu[i])
		}
	}
	t.Logf("losses from %v to %v, which differ by at most %.2g", host[0], host[99], most)
}

// stepLosses trains on a device and returns the loss of each step.
func stepLosses(t *testing.T, device, flags string) (losses []float64) {
	t.Helper()
	o, err := parse(append(strings.Fields(flags), "-device", device, "-data", dataDir), io.Discard)
	if err == nil {
		losses, err = o.stepLosses()
	}
	if err != nil {
		t.Fatal(err)
	}
	return losses
}

func (o *options) stepLosses() (losses []float64, err error) {
	err = o.withTrainer(func(tr *trainer) error {
		for range tr.epochs {
			of, err := tr.epochLosses()
			if err != nil {
				return err
			}
			losses = append(losses, of...)
		}
		return nil
	})
	return losses, err
}

// withTrainer calls f with what trains as o asks for. Nothing may be left to the
// host.
func (o *options) withTrainer(f func(*trainer) error) (err error) {
	train, test, err := training.LoadData(&o.Options)
	if err != nil {
		return err
	}
	ranks := o.ranks(io.Discard, io.Discard)
	return together(context.Background(), ranks, func(_ context.Context, r *rank) (err error) {
		tr, err := r.trainer(train, test)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, tr.free()) }()
		if err := f(tr); err != nil {
			return err
		}
		// A test that looks at a part of the test set only has the host put it in order.
		if n := tr.eng.Stats().Fallbacks + tr.train.fallbacks(); n > 0 && !fakecuda.Loaded() {
			return fmt.Errorf("%d operations were left to the host", n)
		}
		return nil
	})
}

// epochLosses takes the steps of an epoch and waits for each.
func (t *trainer) epochLosses() (losses []float64, err error) {
	sc := t.eng.Scope()
	defer func() { err = errors.Join(err, sc.Close()) }()
	defer catch(&err)
	t.train.shuffle(t.order)
	t.order = <-training.Shuffled(t.rng, t.trainN)
	for i := range t.steps {
		check(t.eng.Zero(t.loss))
		check(t.step(i*t.batch, t.learn(t.turn(0))))
		losses = append(losses, number(t.eng, must(tensor.Sum(t.loss)))/float64(t.batch))
		t.stepTimes = append(t.stepTimes, 0) // the learning rate goes by their number
	}
	return losses, nil
}

// The steps of graphs, of all of an epoch and with a shorter graph at its end,
// compute the same as steps one by one, to the bit, whether parts of them run at
// the same time or not.
func TestGraphSteps(t *testing.T) {
	for optimizer, graphs := range map[string][]string{
		"sgd":           {"4", "7", "4 -graph-fork", "7 -graph-fork"},
		"adam -lr 0.01": {"4 -graph-fork"},
	} {
		oneByOne := trainOnGPU(t, "-optimizer "+optimizer)
		if oneByOne == nil {
			t.Skip("there are no kernels: the stand-in driver was built without a C++ compiler")
		}
		for _, flags := range graphs {
			t.Run(optimizer+" "+flags, func(t *testing.T) {
				for i, after := range trainOnGPU(t, "-optimizer "+optimizer+" -graph -graph-fork=false -graph-steps "+flags) {
					if !slices.Equal(oneByOne[i], after) {
						t.Fatalf("epoch %d: the losses and parameters differ", i+1)
					}
				}
			})
		}
	}
}

// trainOnGPU returns what three epochs of 7 steps leave in each parameter, and
// their losses. With graphs, the last two epochs are launches only.
func trainOnGPU(t *testing.T, flags string) (after [][]float32) {
	t.Helper()
	flags += " -device cuda -shift 0 -train-samples 70 -epochs 3 -batch 10 -hidden 12,8"
	o, err := parse(append(strings.Fields(flags), "-data", dataDir), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	err = o.withTrainer(func(tr *trainer) error {
		tr.testN = 10
		for range tr.epochs {
			e, err := tr.runEpoch(t.Context(), func() {})
			if err != nil {
				return err
			}
			all := []float32{float32(e.loss), float32(e.accuracy)}
			for _, p := range tr.net.params() {
				all = append(all, must(tr.eng.ToHost(p.value)).Data().([]float32)...)
			}
			after = append(after, all)
		}
		return nil
	})
	if errors.Is(err, cupool.ErrNotSupported) && fakecuda.Loaded() {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return after
}
