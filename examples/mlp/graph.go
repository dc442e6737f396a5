package main

import (
	"errors"

	"github.com/cupool/cupool"
	"gorgonia.org/tensor"
)

// usualGraphSteps is the most steps that a graph has, unless -graph-steps says
// otherwise. Graphs of 30 are as fast, but more of them hold more memory.
const usualGraphSteps = 500

// graphSteps are the steps of an epoch as CUDA graphs, captured once: one for
// each place where an epoch's samples may lie. The learning rate and the number
// of a step, which change from epoch to epoch, are read where begin puts them.
type graphSteps struct {
	data           *resident
	graphs         [2][]*cupool.Graph // by the place; none before capture
	n              int                // steps of each, but for the last
	fork           bool               // see learnForked
	rates, numbers *tensor.Dense      // of the epoch's steps
}

// newGraphSteps makes no graphs yet, which are to have at most so many of an
// epoch's steps.
func newGraphSteps(eng *cupool.Engine, data *resident, steps, most int, fork bool) *graphSteps {
	return &graphSteps{
		data:    data,
		n:       graphSize(steps, most),
		fork:    fork,
		rates:   zeros(eng, tensor.Float32, steps),
		numbers: zeros(eng, tensor.Float32, steps),
	}
}

// graphSize is how many steps graphs of at most so many have, if they are to be
// few and about equal.
func graphSize(steps, most int) int {
	graphs := (steps + most - 1) / most
	return (steps + graphs - 1) / graphs
}

// capture makes all graphs, once a step was taken without.
func (g *graphSteps) capture(t *trainer) error {
	defer func(now int) { g.data.now = now }(g.data.now)
	for place := range g.graphs {
		g.data.now = place
		for from := 0; from < t.steps; from += g.n {
			graph, err := t.eng.Capture(func() error { return g.steps(t, from, min(from+g.n, t.steps)) })
			if err != nil {
				return err
			}
			g.graphs[place] = append(g.graphs[place], graph)
		}
	}
	return nil
}

// captured reports whether there are graphs.
func (g *graphSteps) captured() bool { return len(g.graphs[0]) > 0 }

// steps takes those of an epoch in [from, to), for capture.
func (g *graphSteps) steps(t *trainer, from, to int) error {
	learner := t.learn
	if g.fork && t.peers == nil { // or the exchange of gradients runs beside the others
		learner = t.learnForked
	}
	for i := from; i < to; i++ {
		at := turn{numberAt: must(g.numbers.Slice(tensor.S(i))), rateAt: must(g.rates.Slice(tensor.S(i)))}
		if err := t.step(i*t.batch, learner(at)); err != nil {
			return err
		}
	}
	return nil
}

// begin tells the graphs the turns of the epoch that begins.
func (g *graphSteps) begin(t *trainer) {
	rates, numbers := make([]float32, t.steps), make([]float32, t.steps)
	for i := range t.steps {
		at := t.turn(i)
		rates[i], numbers[i] = float32(at.rate), float32(at.number)
	}
	check(t.eng.Copy(g.rates, tensor.New(tensor.WithBacking(rates))))
	check(t.eng.Copy(g.numbers, tensor.New(tensor.WithBacking(numbers))))
}

// launch runs the steps of the graph that begins with one of an epoch's steps,
// and returns how many these are: 0, if none does.
func (g *graphSteps) launch(t *trainer, step int) (int, error) {
	if g == nil || !g.captured() || step%g.n != 0 {
		return 0, nil
	}
	return min(g.n, t.steps-step), g.graphs[g.data.now][step/g.n].Launch()
}

// tensors are all that live as long as the graphs.
func (g *graphSteps) tensors() []tensor.Tensor {
	if g == nil {
		return nil
	}
	return []tensor.Tensor{g.rates, g.numbers}
}

// close gives the graphs back.
func (g *graphSteps) close() error {
	if g == nil {
		return nil
	}
	var errs []error
	for _, graphs := range g.graphs {
		for _, graph := range graphs {
			errs = append(errs, graph.Close())
		}
	}
	return errors.Join(errs...)
}
