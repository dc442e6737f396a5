package main

import "github.com/cupool/cupool"

// mostGraphSteps is the most steps that a graph has: enough that what comes
// between two launches takes little of the time.
const mostGraphSteps = 30

// graphSteps are n steps as a CUDA graph, on the samples of a window. The graph
// is nil before the first capture.
type graphSteps struct {
	graph  *cupool.Graph
	data   *resident
	window samples
	n      int
}

// newGraphSteps makes the window for as many steps of a batch as an epoch's steps
// can be divided by.
func newGraphSteps(data *resident, batch, steps int) *graphSteps {
	n := min(mostGraphSteps, steps)
	for steps%n != 0 {
		n--
	}
	return &graphSteps{data: data, window: data.window(n * batch), n: n}
}

// capture makes a new graph of t's steps, while the device computes what it was
// given. The learning rate stays what it is now.
func (g *graphSteps) capture(t *trainer) (err error) {
	if err := g.close(); err != nil {
		return err
	}
	defer func(all samples) { g.data.ordered = all }(g.data.ordered)
	g.data.ordered = g.window
	g.graph, err = t.eng.Capture(func() error {
		for i := range g.n {
			if err := t.step(i * t.batch); err != nil {
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
	g.data.copyTo(g.window, from)
	return g.graph.Launch()
}

// close gives the graph back, if there is one.
func (g *graphSteps) close() error {
	if g == nil || g.graph == nil {
		return nil
	}
	return g.graph.Close()
}
