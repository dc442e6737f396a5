package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/mnist"
	"github.com/cupool/cupool/nn"
	subset "github.com/cupool/cupool/testdata/mnist"
	"gorgonia.org/tensor"
)

const (
	trainingLabel = "training"
	trainingBatch = 50
	usualSteps    = 40 // of a training, after which it has learned
)

// A training trains the network of examples/mlp, from the same start again and
// again. Its losses have to be the same each time.
type training struct {
	k      *soak
	stream *cupool.Stream
	eng    *cupool.Engine
	set    *mnist.Set
	losses []float64 // of the first time
}

// newTraining trains once, while nothing else uses the allocator.
func (k *soak) newTraining() (*training, error) {
	var set *mnist.Set
	var err error
	if k.mnist != "" {
		set, _, err = mnist.Load(k.mnist)
	} else {
		set, _, err = mnist.LoadFS(subset.Files, "testdata/mnist")
	}
	if err != nil {
		return nil, err
	}
	if set.N < trainingBatch*k.steps {
		return nil, fmt.Errorf("%d training images, but %d are needed", set.N, trainingBatch*k.steps)
	}
	t := &training{k: k, set: set}
	if t.stream, err = k.newStream(); err != nil {
		return nil, err
	}
	if t.eng, err = cupool.NewEngine(k.pool.WithLabel(trainingLabel), cupool.WithStream(t.stream)); err != nil {
		return nil, err
	}
	if t.losses, err = t.train(context.Background()); err != nil {
		return nil, err
	}
	if first, last := t.losses[0], t.losses[k.steps-1]; k.steps >= usualSteps && !(last < first/2) {
		return nil, fmt.Errorf("the training learns nothing: its loss is %v at first and %v at last", first, last)
	}
	return t, nil
}

func (t *training) close() error { return t.stream.Close() }

// repeat trains until ctx is done.
func (t *training) repeat(ctx context.Context, _ *rand.Rand) {
	for ctx.Err() == nil {
		losses, err := t.train(ctx)
		if ctx.Err() != nil {
			return
		}
		t.k.tolerate("training", err)
		if err != nil {
			continue
		}
		t.k.count.trainings.Add(1)
		if i := t.differ(losses); i >= 0 {
			t.k.corrupted(fmt.Sprintf("training: the loss of step %d is %v, and was %v the first time", i+1, losses[i], t.losses[i]))
		}
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

// A layer has weights and a bias, each with gradient and momentum.
type layer struct{ w, b nn.Param }

// train trains from the start and returns the loss of each step.
func (t *training) train(ctx context.Context) (losses []float64, err error) {
	var layers []layer
	var params []nn.Param
	var all []tensor.Tensor
	defer func() {
		t.k.quiet.RLock()
		defer t.k.quiet.RUnlock()
		err = errors.Join(err, t.eng.FreeTensor(all...))
	}()
	err = t.quietly(func() error {
		r := rand.New(rand.NewPCG(1, 1))
		widths := []int{t.set.Size(), 128, 64, mnist.Classes}
		for i, in := range widths[:len(widths)-1] {
			l := layer{w: t.param(&all, r, in, widths[i+1]), b: t.param(&all, nil, 1, widths[i+1])}
			layers, params = append(layers, l), append(params, l.w, l.b)
		}
		return nil
	})
	for i := 0; i < t.k.steps && err == nil && ctx.Err() == nil; i++ {
		err = t.quietly(func() error {
			loss, err := t.step(layers, params, i*trainingBatch)
			losses = append(losses, loss)
			return err
		})
	}
	return losses, err
}

// quietly runs f, which no quiet moment interrupts. tensor panics where memory
// runs out.
func (t *training) quietly(f func() error) error {
	t.k.quiet.RLock()
	defer t.k.quiet.RUnlock()
	t.k.count.operations.Add(1)
	return cupool.Try(f)
}

// param makes a parameter. r draws its values, and nil stands for zeros.
func (t *training) param(all *[]tensor.Tensor, r *rand.Rand, in, out int) nn.Param {
	values := make([]float32, in*out)
	if r != nil {
		for i := range values {
			values[i] = float32(math.Sqrt(2/float64(in)) * r.NormFloat64())
		}
	}
	p := nn.Param{Value: t.kept(all, values, in, out)}
	clear(values)
	p.Grad, p.Momentum = t.kept(all, values, in, out), t.kept(all, values, in, out)
	return p
}

func (t *training) kept(all *[]tensor.Tensor, values []float32, shape ...int) tensor.Tensor {
	x := t.upload(slices.Clone(values), shape...)
	*all = append(*all, x)
	return x
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

// step learns from the samples from a place on.
func (t *training) step(layers []layer, params []nn.Param, from int) (loss float64, err error) {
	scope := t.eng.Scope()
	defer func() { err = errors.Join(err, scope.Close()) }()
	const n = trainingBatch
	pixels, classes := make([]float32, 0, n*t.set.Size()), make([]int, 0, n)
	for i := from; i < from+n; i++ {
		for _, v := range t.set.Image(i) {
			pixels = append(pixels, 2*float32(v)/255)
		}
		classes = append(classes, int(t.set.Labels[i]))
	}
	acts := []tensor.Tensor{t.upload(pixels, n, t.set.Size())}
	y := t.upload(classes, n)
	activation := func(i int) nn.Activation {
		if i == len(layers)-1 {
			return nn.NoActivation
		}
		return nn.ReLU
	}
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	for i, l := range layers {
		z := must(t.eng.Empty(tensor.Float32, n, l.w.Value.Shape()[1]))
		note(nn.Linear(t.eng, acts[i], l.w.Value, l.b.Value, z, activation(i)))
		acts = append(acts, z)
	}
	losses := t.upload(make([]float32, n), n)
	var d tensor.Tensor = must(t.eng.Empty(tensor.Float32, acts[len(layers)].Shape()...))
	note(nn.CrossEntropy(t.eng, acts[len(layers)], y, losses, d))
	for i := len(layers) - 1; i >= 0; i-- {
		var in tensor.Tensor
		act := nn.NoActivation
		if i > 0 {
			in, act = must(t.eng.Empty(tensor.Float32, acts[i].Shape()...)), activation(i-1)
		}
		note(nn.LinearBack(t.eng, acts[i], layers[i].w.Value, d, in, layers[i].w.Grad, layers[i].b.Grad, act))
		d = in
	}
	note(nn.SGD{LearningRate: 0.05, Momentum: 0.9}.Step(t.eng, params...))
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	for _, l := range must(t.eng.ToHost(losses)).Data().([]float32) {
		loss += float64(l) / n
	}
	return loss, nil
}
