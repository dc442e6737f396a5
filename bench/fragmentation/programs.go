package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
)

// Made-up programs of the kinds that were recorded, and of others. A seed chooses what one
// is like, so that what was chosen by some seeds can be judged by others.

// maker writes a trace.
type maker struct {
	*rand.Rand
	text bytes.Buffer
	next int
}

const mib = 1 << 20

// makeProgram returns the trace of a program of a kind.
func makeProgram(kind string, seed uint64) []byte {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 41))}
	kinds[kind](m)
	return m.text.Bytes()
}

func (m *maker) alloc(n, stream int) int {
	fmt.Fprintf(&m.text, "a %d %d %d\n", m.next, max(n, 1), stream)
	m.next++
	return m.next - 1
}

func (m *maker) free(ids ...int) {
	for _, id := range ids {
		fmt.Fprintf(&m.text, "f %d\n", id)
	}
}

func (m *maker) temporary(n, stream int) { m.free(m.alloc(n, stream)) }

// between returns a number from lo to hi, such that each doubling is as likely.
func (m *maker) between(lo, hi int) int {
	return int(float64(lo) * math.Pow(float64(hi)/float64(lo), m.Float64()))
}

// linear returns a number from lo to hi.
func (m *maker) linear(lo, hi int) int { return lo + m.IntN(hi-lo+1) }

// kinds write programs, by what they do.
var kinds = map[string]func(*maker){
	"sequences":     (*maker).sequences,
	"graphs":        (*maker).graphs,
	"images":        (*maker).images,
	"autoencoder":   (*maker).autoencoder,
	"checkpointing": (*maker).checkpointing,
	"experts":       (*maker).experts,
	"buffer":        (*maker).buffer,
	"caches":        (*maker).caches,
	"shards":        (*maker).shards,
	"models":        (*maker).models,
	"threads":       (*maker).threads,
}

// weights are a network's, with the states of its optimizer.
func (m *maker) weights(layers, width int) (ids []int) {
	for range 3 * layers {
		ids = append(ids, m.alloc(16*width*width, 0), m.alloc(4*width*width, 0), m.alloc(4*width, 0))
	}
	return ids
}

// backward frees what forward kept, last first, and makes a gradient of weights for every
// so many of these blocks.
func (m *maker) backward(kept []int, every, weight int, gradient func(i int) int) {
	var gradients []int
	for i := len(kept) - 1; i >= 0; i-- {
		if i%every == 0 {
			gradients = append(gradients, m.alloc(weight, 0), m.alloc(4096, 0))
		}
		g := m.alloc(gradient(i), 0)
		m.free(kept[i], g)
	}
	m.free(gradients...)
}

// sequences trains a transformer on sequences of any length.
func (m *maker) sequences() {
	layers, width, longest := m.linear(6, 16), 128*m.linear(4, 12), m.between(2048, 8192)
	m.weights(layers, width)
	for range 30 {
		var kept []int
		tokens := m.linear(64, longest)
		for range layers {
			for _, n := range []int{2, 6, 2, 8, 8, 2} {
				kept = append(kept, m.alloc(n*width*tokens, 0))
			}
			m.temporary(8*width*tokens, 0)
		}
		m.temporary(4*16000*tokens, 0)
		m.backward(kept, 6, 16*width*width, func(int) int { return 2 * width * tokens })
	}
}

// graphs trains a network on graphs of any size.
func (m *maker) graphs() {
	width, layers, most := 64*m.linear(2, 8), m.linear(2, 6), m.between(40_000, 200_000)
	m.weights(layers, 4*width)
	sizes := make([][2]int, m.linear(60, 200)) // nodes, edges
	for i := range sizes {
		n := m.between(500, most)
		sizes[i] = [2]int{n, n * m.linear(3, 20)}
	}
	for range 3 {
		m.Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
		for _, g := range sizes {
			nodes, edges := 4*width*g[0], width/2*g[1]
			kept := []int{m.alloc(nodes/4, 0), m.alloc(edges/8, 0)}
			for range layers {
				messages := m.alloc(edges, 0)
				kept = append(kept, m.alloc(nodes, 0))
				m.free(messages)
				kept = append(kept, m.alloc(nodes, 0), m.alloc(nodes/4, 0))
			}
			gradient := m.alloc(nodes, 0)
			for range layers {
				messages, next := m.alloc(edges, 0), m.alloc(nodes, 0)
				n := len(kept) - 3
				m.free(gradient, messages, kept[n+2], kept[n+1], kept[n])
				gradient, kept = next, kept[:n]
			}
			m.free(append(kept, gradient)...)
		}
	}
}

// images trains a convolutional network on images of any size.
func (m *maker) images() {
	batch, width := m.linear(4, 16), 16*m.linear(1, 4)
	m.weights(4, 512)
	for range 40 {
		var kept []int
		pixels, channels := m.linear(200, 900)*m.linear(200, 900), width
		for range m.linear(4, 5) {
			for range 3 {
				m.temporary(m.between(mib, 64*mib), 0)
				kept = append(kept, m.alloc(2*batch*channels*pixels, 0), m.alloc(8*channels, 0))
			}
			pixels, channels = pixels/4, 2*channels
		}
		last := 2 * batch * channels * pixels
		m.backward(kept, 2, m.between(64<<10, 9*mib), func(i int) int { return last << (i / 6 % 5) })
	}
}

// autoencoder trains a network whose first results are used last.
func (m *maker) autoencoder() {
	depth, width := m.linear(3, 5), 8*m.linear(4, 12)
	m.weights(6, 512)
	for range 40 {
		var skips, kept []int
		n := 2 * width * m.linear(256, 1400) * m.linear(256, 1400)
		for range depth {
			m.temporary(n+m.IntN(8*mib), 0)
			skips = append(skips, m.alloc(n, 0))
			kept = append(kept, m.alloc(n, 0), m.alloc(n/2, 0))
			n /= 2
		}
		for i := depth - 1; i >= 0; i-- {
			n *= 2
			m.temporary(2*n, 0)
			kept = append(kept, m.alloc(2*n, 0), m.alloc(n, 0))
			m.free(skips[i])
		}
		m.backward(kept, 2, 4*mib, func(i int) int { return n / (1 + i%4) })
	}
}

// checkpointing trains a transformer that keeps the inputs of its layers and computes
// the rest again.
func (m *maker) checkpointing() {
	layers, width := m.linear(6, 24), 128*m.linear(4, 12)
	m.weights(layers, width)
	for range 30 {
		tokens := m.linear(256, 6000)
		layer := func() (kept []int) {
			for _, n := range []int{2, 6, 2, 8, 8} {
				kept = append(kept, m.alloc(n*width*tokens, 0))
			}
			return kept
		}
		var inputs, gradients []int
		for range layers {
			inputs = append(inputs, m.alloc(2*width*tokens, 0))
			m.free(layer()...)
		}
		for i := layers - 1; i >= 0; i-- {
			m.backward(layer(), 9, 4096, func(int) int { return 2 * width * tokens })
			gradients = append(gradients, m.alloc(16*width*width, 0))
			m.free(inputs[i])
		}
		m.free(gradients...)
	}
}

// experts trains a network that gives its tokens to experts, to each as it comes.
func (m *maker) experts() {
	layers, width, experts := m.linear(3, 10), 128*m.linear(5, 12), 4<<m.IntN(3)
	m.weights(layers, width)
	for range 25 {
		var kept []int
		tokens := m.linear(1024, 8192)
		for range layers {
			kept = append(kept, m.alloc(2*width*tokens, 0))
			for left, e := tokens, experts; e > 0 && left > 0; e-- {
				n := min(left, m.between(1, max(4*tokens/experts, 2)))
				kept = append(kept, m.alloc(2*width*n, 0), m.alloc(8*width*n, 0))
				left -= n
			}
			m.temporary(4*width*tokens, 0)
		}
		m.backward(kept, 5, 8*width*width, func(i int) int { return 2 * width * tokens / (1 + i%experts) })
	}
}

// buffer trains on batches of items of any size, of which it keeps so many.
func (m *maker) buffer() {
	items, batch, updates := m.between(50, 400), m.linear(1, 10), m.linear(1, 3)
	least := m.between(400<<10, 4*mib)
	most, evict, parts := least*m.between(2, 40), m.IntN(3), m.linear(1, 3)
	for range 30 {
		m.alloc(m.between(512, 6*mib), 0)
	}
	type item struct {
		ids  []int
		size int
	}
	var held []item
	part := func(n int, k float64) int { return int(float64(n) * k) }
	forward := func(n int) (kept []int) {
		for _, k := range []float64{1.81, .735, .445} {
			c := m.alloc(part(n, k), 0)
			m.temporary(part(n, 3*k), 0)
			kept = append(kept, m.alloc(part(n, k), 0))
			m.free(c)
		}
		return append(kept, m.alloc(n/14, 0), m.alloc(65536, 0))
	}
	for range 300 {
		n := m.between(least, most)
		observation := m.alloc(n, 0)
		m.free(forward(n)...)
		if len(held) >= items {
			i := 0 // the oldest
			switch {
			case evict == 1:
				i = m.IntN(len(held))
			case evict == 2 && m.IntN(4) > 0:
				i = len(held)/2 + m.IntN((len(held)+1)/2)
			}
			m.free(held[i].ids...)
			held = append(held[:i], held[i+1:]...)
		}
		it := item{size: n}
		for p := range parts {
			it.ids = append(it.ids, m.alloc(n>>p, 0))
		}
		held = append(held, it)
		m.free(observation)
		for range updates {
			in := 0
			for range batch {
				in += held[m.IntN(len(held))].size
			}
			x := m.alloc(in, 0)
			y := m.alloc(4*in, 0)
			m.free(x)
			kept := forward(in)
			m.free(forward(in)...) // the target network
			m.backward(kept, 2, m.between(4096, 6*mib), func(i int) int { return part(in, 1.6/float64(i+1)) })
			m.free(y)
		}
	}
}

// caches serves requests whose caches grow by a token a step; prompts come on a second
// stream.
func (m *maker) caches() {
	layers, width, most := m.linear(3, 7), 256*m.linear(6, 16), m.linear(8, 32)
	m.weights(layers, width)
	type request struct {
		caches       []int
		tokens, left int
	}
	var running []*request
	for range 200 {
		if len(running) < most && m.IntN(4) == 0 {
			r := &request{tokens: m.between(16, 2000), left: m.between(10, 200)}
			for range layers {
				m.temporary(8*width*r.tokens, 1)
				r.caches = append(r.caches, m.alloc(4*width*r.tokens, 1))
			}
			running = append(running, r)
		}
		for i := 0; i < len(running); i++ {
			r := running[i]
			if r.left == 0 {
				m.free(r.caches...)
				running = append(running[:i], running[i+1:]...)
				continue
			}
			r.tokens, r.left = r.tokens+1, r.left-1
			for l := range layers {
				m.temporary(32*width, 0)
				larger := m.alloc(4*width*r.tokens, 0)
				m.free(r.caches[l])
				r.caches[l] = larger
			}
		}
		m.temporary(4*32000*max(len(running), 1), 0)
	}
}

// shards gathers the weights of each layer on a second stream before they are used, and
// reduces gradients there.
func (m *maker) shards() {
	layers, width, longest := m.linear(6, 20), 256*m.linear(4, 10), m.between(1024, 8000)
	sizes := make([]int, layers)
	for i := range sizes {
		sizes[i] = 24 * width * width
	}
	sizes[0] = 2 * 32000 * width
	for _, n := range sizes {
		for range 3 {
			m.alloc(n/2, 0)
		}
	}
	for range 30 {
		tokens := m.linear(128, longest)
		var kept [][]int
		gathered := m.alloc(sizes[0], 1)
		for l := range layers {
			now := gathered
			if l+1 < layers {
				gathered = m.alloc(sizes[l+1], 1)
			}
			var ids []int
			for _, n := range []int{2, 6, 2, 8} {
				ids = append(ids, m.alloc(n*width*tokens, 0))
			}
			m.temporary(8*width*tokens, 0)
			kept = append(kept, ids)
			m.free(now)
		}
		for l := layers - 1; l >= 0; l-- {
			weights, gradient := m.alloc(sizes[l], 1), m.alloc(sizes[l], 0)
			m.backward(kept[l], 9, 4096, func(int) int { return 2 * width * tokens })
			m.free(weights)
			reduced := m.alloc(sizes[l]/4, 1)
			m.free(gradient)
			m.free(reduced)
		}
	}
}

// models runs models that are loaded when they are asked for, in the place of what was
// used least lately.
func (m *maker) models() {
	room, n := m.linear(2, 4), m.linear(4, 7)
	type model struct{ layers, width int }
	all := make([]model, n)
	for i := range all {
		all[i] = model{m.linear(4, 24), 128 * m.linear(4, 16)}
	}
	type loaded struct {
		which int
		ids   []int
	}
	var in []loaded
	for range 60 {
		which, w := m.IntN(n), -1
		for i := range in {
			if in[i].which == which {
				w = i
			}
		}
		if w < 0 {
			if len(in) == room {
				m.free(in[0].ids...)
				in = in[1:]
			}
			now := loaded{which: which}
			for range all[which].layers {
				now.ids = append(now.ids, m.weights(1, all[which].width/2)...)
				now.ids = append(now.ids, m.alloc(4*all[which].width, 0))
			}
			in, w = append(in, now), len(in)
		}
		in = append(append(in[:w:w], in[w+1:]...), in[w])
		for range m.linear(1, 8) {
			x := m.alloc(m.between(mib, 64*mib), 0)
			size := m.between(mib, 128*mib)
			for range all[which].layers {
				y := m.alloc(size, 0)
				m.temporary(2*size, 0)
				m.free(x)
				x = y
			}
			m.free(x)
		}
	}
}

// threads trains a network on each of some streams, of which each is dropped after a
// while for another one.
func (m *maker) threads() {
	streams, longest, widest := m.linear(2, 8), m.between(4, 60), m.between(2000, 6000)
	fixed, rests := m.IntN(3) == 0, m.IntN(3) == 0
	type thread struct {
		model               []int
		width, layers, left int
		tasks               []func()
	}
	all := make([]thread, streams)
	for done := 0; done < 900; {
		s := m.IntN(streams)
		t := &all[s]
		if len(t.tasks) > 0 {
			for k := m.linear(1, 6); k > 0 && len(t.tasks) > 0; k-- {
				t.tasks[0]()
				t.tasks = t.tasks[1:]
			}
			continue
		}
		done++
		if t.left == 0 {
			m.free(t.model...)
			t.model, t.width, t.layers = nil, m.between(widest/5, widest)/8*8, m.linear(3, 8)
			if fixed {
				t.width, t.layers = widest/(1+m.IntN(3)), 5
			}
			if rests && m.IntN(2) == 0 {
				continue
			}
			t.left = m.linear(1, longest)
			for range 3 * t.layers {
				t.model = append(t.model, m.alloc(4*t.width*t.width, s), m.alloc(4*t.width, s))
			}
		}
		t.left--
		batch, width := 128<<m.IntN(5), t.width
		if fixed {
			batch = 1024
		}
		var kept, gradients []int
		for range t.layers {
			t.tasks = append(t.tasks, func() {
				kept = append(kept, m.alloc(4*batch*width, s), m.alloc(4*batch*width, s))
				m.temporary(8*batch*width, s)
			})
		}
		for range t.layers {
			t.tasks = append(t.tasks, func() {
				g := m.alloc(4*batch*width, s)
				gradients = append(gradients, m.alloc(4*width*width, s), m.alloc(4*width, s))
				n := len(kept) - 2
				m.free(kept[n], kept[n+1], g)
				kept = kept[:n]
			})
		}
		t.tasks = append(t.tasks, func() {
			m.temporary(4*width*width, s)
			m.free(gradients...)
		})
	}
}
