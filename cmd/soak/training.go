package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/nn"
	"gorgonia.org/tensor"
)

// The sizes of the network, and how often it learns from one batch.
const (
	batchSize, inputs, hidden, classes = 32, 100, 64, 10
	trainingSteps                      = 20
)

// A training trains a network of two layers on an allocator of its own, from the same
// start again and again. Its losses have to be the same each time.
type training struct {
	k      *soak
	pool   *cupool.Pool
	eng    *cupool.Engine
	losses []float64 // of the first time
}

// newTraining trains once, while nothing else uses the device.
func (k *soak) newTraining() (*training, error) {
	pool, err := cupool.New(cupool.Config{Driver: k.driver, Limit: 64 << 20, Decay: time.Second})
	if err != nil {
		return nil, err
	}
	t := &training{k: k, pool: pool}
	if t.eng, err = cupool.NewEngine(pool); err == nil {
		t.losses, err = t.train()
	}
	if err == nil && !(t.losses[trainingSteps-1] < t.losses[0]/2) {
		err = fmt.Errorf("the training learns nothing: its loss is %v at first and %v at last", t.losses[0], t.losses[trainingSteps-1])
	}
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return t, nil
}

func (t *training) close() error { return t.pool.Close() }

// repeat trains until ctx is done.
func (t *training) repeat(ctx context.Context) {
	for ctx.Err() == nil {
		losses, err := t.train()
		st := t.pool.Stats()
		switch i := t.differ(losses); {
		case err != nil:
			t.k.report("training: %v", err)
		case i >= 0:
			t.k.report("training: the loss of step %d is %v, and was %v the first time", i+1, losses[i], t.losses[i])
		case st.LiveBytes > 0:
			t.k.report("leak: %d bytes are live after a training", st.LiveBytes)
		}
		t.k.trainings.Add(1)
		t.k.stats[t.k.workers].Store(&st)
	}
}

// differ returns the first step whose loss is not as the first time, or -1. A
// GPU may add up in another order.
func (t *training) differ(losses []float64) int {
	tolerance := 0.0
	if !t.eng.AllocAccessible() {
		tolerance = 1e-3
	}
	for i, l := range losses {
		if !(math.Abs(l-t.losses[i]) <= tolerance*math.Abs(l)) {
			return i
		}
	}
	return -1
}

// train trains from the start and returns the loss of each step. tensor panics where
// memory runs out.
func (t *training) train() (losses []float64, err error) {
	scope := t.eng.Scope()
	defer func() { err = errors.Join(err, scope.Close()) }()
	err = cupool.Try(func() error {
		r := rand.New(rand.NewPCG(1, 1))
		x, labels := t.normal(r, 1, batchSize, inputs), make([]int, batchSize)
		for i := range labels {
			labels[i] = r.IntN(classes)
		}
		y := t.upload(labels, batchSize)
		params := []nn.Param{
			t.param(r, math.Sqrt(2./inputs), inputs, hidden), t.param(r, 0, 1, hidden),
			t.param(r, math.Sqrt(2./hidden), hidden, classes), t.param(r, 0, 1, classes),
		}
		for range trainingSteps {
			loss, err := t.step(x, y, params)
			if err != nil {
				return err
			}
			losses = append(losses, loss)
		}
		return nil
	})
	return losses, err
}

// step learns once from the batch and returns its loss.
func (t *training) step(x, y tensor.Tensor, params []nn.Param) (loss float64, err error) {
	scope, e := t.eng.Scope(), t.eng
	defer func() { err = errors.Join(err, scope.Close()) }()
	empty := func(cols int) tensor.Tensor { return must(e.Empty(tensor.Float32, batchSize, cols)) }
	w1, b1, w2, b2 := params[0], params[1], params[2], params[3]
	a, logits, dLogits, da := empty(hidden), empty(classes), empty(classes), empty(hidden)
	losses := t.upload(make([]float32, batchSize), batchSize)
	for _, f := range []func() error{
		func() error { return nn.Linear(e, x, w1.Value, b1.Value, a, nn.ReLU) },
		func() error { return nn.Linear(e, a, w2.Value, b2.Value, logits, nn.NoActivation) },
		func() error { return nn.CrossEntropy(e, logits, y, losses, dLogits) },
		func() error { return nn.LinearBack(e, a, w2.Value, dLogits, da, w2.Grad, b2.Grad, nn.ReLU) },
		func() error { return nn.LinearBack(e, x, w1.Value, da, nil, w1.Grad, b1.Grad, nn.NoActivation) },
		func() error { return nn.SGD{LearningRate: 0.3, Momentum: 0.9}.Step(e, params...) },
	} {
		if err := f(); err != nil {
			return 0, err
		}
	}
	for _, l := range must(e.ToHost(losses)).Data().([]float32) {
		loss += float64(l) / batchSize
	}
	return loss, nil
}

// param makes a parameter, with no gradient and no momentum yet.
func (t *training) param(r *rand.Rand, scale float64, rows, cols int) nn.Param {
	return nn.Param{Value: t.normal(r, scale, rows, cols), Grad: t.normal(r, 0, rows, cols), Momentum: t.normal(r, 0, rows, cols)}
}

// normal makes a matrix of normally distributed values.
func (t *training) normal(r *rand.Rand, scale float64, rows, cols int) tensor.Tensor {
	values := make([]float32, rows*cols)
	for i := range values {
		values[i] = float32(scale * r.NormFloat64())
	}
	return t.upload(values, rows, cols)
}

func (t *training) upload(values any, shape ...int) tensor.Tensor {
	return must(t.eng.FromHost(tensor.New(tensor.WithBacking(values), tensor.WithShape(shape...))))
}

// must is the result of an operation. Its error is a panic, as tensor's own are.
func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
