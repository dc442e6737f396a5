package main

import (
	"errors"
	"math/rand/v2"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/mnist"
	"gorgonia.org/tensor"
)

// A prefetcher makes the next batch while the device works on the last one: in
// a goroutine, and on a stream of its own, so that copies and computation run
// at the same time. The tensors go over to the engine that computes.
type prefetcher struct {
	eng  *cupool.Engine // computes
	made *batcher       // on an engine of its own
	size int            // of a batch, of all ranks

	next chan fetched // of this epoch; nil before the first
	stop chan struct{}
	last []tensor.Tensor // the batch that was handed out last
}

// fetched is a batch, or why there is none.
type fetched struct {
	x, y tensor.Tensor
	err  error
}

func newPrefetcher(eng *cupool.Engine, set *mnist.Set, of share, shift, size int, rng *rand.Rand) *prefetcher {
	return &prefetcher{eng: eng, made: newBatcher(must(engineOn(eng.Allocator())), set, of, shift, rng), size: size}
}

// shuffle starts the goroutine of an epoch, which may be one batch ahead of
// what is waiting.
func (p *prefetcher) shuffle(order []int) {
	check(p.rest())
	p.made.shuffle(order)
	next, stop := make(chan fetched, 1), make(chan struct{})
	p.next, p.stop = next, stop
	go func() {
		defer close(next)
		for from := 0; from+p.size <= len(order); from += p.size {
			f := p.fetch(from)
			select {
			case next <- f:
			case <-stop:
				p.discard(f)
				return
			}
			if f.err != nil {
				return
			}
		}
	}()
}

// fetch makes a batch and waits until it is on the device.
func (p *prefetcher) fetch(from int) (f fetched) {
	scope := p.made.eng.Scope()
	defer func() { f.err = errors.Join(f.err, scope.Close()) }()
	defer catch(&f.err)
	x, y := p.made.batch(from, from+p.size)
	check(p.made.eng.Sync())
	handOver(p.eng, x, y)
	check(scope.Keep(x, y))
	return fetched{x: x, y: y}
}

func (p *prefetcher) prepare([]int) {}

// batch returns the batches in order. Each is freed when the next is asked for.
func (p *prefetcher) batch(int, int) (x, y tensor.Tensor) {
	check(p.freeLast())
	f, ok := <-p.next
	if !ok {
		f.err = errors.New("there are no more batches in this epoch")
	}
	check(f.err)
	p.last = []tensor.Tensor{f.x, f.y}
	return f.x, f.y
}

func (p *prefetcher) freeLast() error {
	last := p.last
	p.last = nil
	return p.eng.FreeTensor(last...)
}

func (p *prefetcher) discard(f fetched) { _ = p.eng.FreeTensor(f.x, f.y) }

// rest ends the goroutine and frees what it has made.
func (p *prefetcher) rest() error {
	if p.next == nil {
		return nil
	}
	close(p.stop)
	for f := range p.next {
		p.discard(f)
	}
	p.next = nil
	return p.freeLast()
}

func (p *prefetcher) tensors() []tensor.Tensor { return nil }

func (p *prefetcher) fallbacks() int64 { return p.made.eng.Stats().Fallbacks }
