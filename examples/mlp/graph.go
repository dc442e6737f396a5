package main

import "github.com/cupool/cupool"

// usualGraphSteps is the most steps that a graph has, unless -graph-steps says
// otherwise: enough that what comes between two launches takes little of the
// time. Each epoch captures a graph, as the learning rate is part of it, and a
// larger one takes longer to upload, which the device waits for.
const usualGraphSteps = 30

// graphSteps are n steps as a CUDA graph. The graph is nil before the first
// capture. Where a graph may have all steps of an epoch, it is captured on that
// epoch's samples, where they lie; others run on a window, which samples are
// copied to before each launch.
type graphSteps struct {
	graph  *cupool.Graph
	data   *resident
	window samples // none: graphs are of whole epochs
	n      int
	fork   bool // see learnForked
}

// newGraphSteps makes the window, for the steps of an epoch in graphs of at most
// so many.
func newGraphSteps(data *resident, batch, steps, most int, fork bool) *graphSteps {
	g := &graphSteps{data: data, n: graphSize(steps, most), fork: fork}
	if g.n < steps {
		g.window = data.window(g.n * batch)
	}
	return g
}

// graphSize is how many steps of an epoch a graph is to have: the most that they
// can be divided by, or else so many that fewer are left over than there are
// graphs.
func graphSize(steps, most int) int {
	most = min(steps, most)
	for n := most; 2*n > most; n-- {
		if steps%n == 0 {
			return n
		}
	}
	return steps / ((steps + most - 1) / most)
}

// inPlace reports whether a graph reads an epoch's samples where they lie.
func (g *graphSteps) inPlace() bool { return g.window.x == nil }

// capture makes a new graph of t's steps, while the device computes what it was
// given. The learning rate stays what it is now. In place, the graph has the
// steps of this epoch from one on, or else, from 0, those of the next.
func (g *graphSteps) capture(t *trainer, from int) (err error) {
	defer catch(&err)
	check(g.close())
	defer func(all samples) { g.data.ordered = all }(g.data.ordered)
	if g.inPlace() {
		g.n = t.steps - from
		if from == 0 {
			g.data.ordered = g.data.upcoming()
		}
	} else {
		from, g.data.ordered = 0, g.window
	}
	learn := t.learn
	if g.fork {
		learn = t.learnForked
	}
	g.graph, err = t.eng.Capture(func() error {
		for i := range g.n {
			if err := t.step((from+i)*t.batch, learn); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// launch runs the steps on the samples from a place in the order on.
func (g *graphSteps) launch(from int) (err error) {
	defer catch(&err)
	if !g.inPlace() {
		g.data.copyTo(g.window, from)
	}
	return g.graph.Launch()
}

// close gives the graph back, if there is one.
func (g *graphSteps) close() error {
	if g == nil || g.graph == nil {
		return nil
	}
	return g.graph.Close()
}
