package gorgoniavm

import (
	"slices"
	"sync"
	_ "unsafe" // for go:linkname

	"gorgonia.org/tensor"
)

// The tape machine makes the destinations of its operations with a tensor.New
// that names no engine. What engine that has then is what the recycled tensor
// has that New takes from tensor's pool, and those can be had to have ours.

// densePool is tensor's pool of recycled tensors, oldest first.
//
//go:linkname densePool gorgonia.org/tensor.densePool
var densePool chan *tensor.Dense

// primedPerNode is how many tensors a run is expected to make for a node of its
// graph, headers of views included.
const primedPerNode = 4

// priming guards densePool's being ours, for one run at a time.
var priming sync.Mutex

// primed calls f with nothing but tensors of our engine to be had from
// densePool.
func (t *Tape) primed(f func() error) error {
	if t.prime == 0 {
		return f()
	}
	priming.Lock()
	defer priming.Unlock()
	drain()
	for len(t.spare) < min(t.prime, cap(densePool)) {
		d := new(tensor.Dense)
		tensor.WithEngine(t.e)(d)
		t.spare = append(t.spare, d)
	}
	for _, d := range t.spare {
		select {
		case densePool <- d:
		default: // another goroutine returns tensors
		}
	}
	err := f()
	t.spare = slices.DeleteFunc(drain(), func(d *tensor.Dense) bool { return d.Engine() != tensor.Engine(t.e) })
	return err
}

// drain empties the pool and returns what was there.
func drain() (ds []*tensor.Dense) {
	for {
		select {
		case d := <-densePool:
			ds = append(ds, d)
		default:
			return ds
		}
	}
}
