package replay

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

// Programs beside the recorded ones, of other shapes: what a trace may cost
// holds for any, not for those that the allocator was measured on. They are the
// same in every run.

// workload writes a trace.
type workload struct {
	*rand.Rand
	text strings.Builder
	next int
}

func (w *workload) alloc(bytes int) int { return w.allocOn(0, bytes) }

func (w *workload) allocOn(stream, bytes int) int {
	fmt.Fprintf(&w.text, "a %d %d %d\n", w.next, bytes, stream)
	w.next++
	return w.next - 1
}

func (w *workload) free(ids ...int) {
	for _, id := range ids {
		fmt.Fprintf(&w.text, "f %d\n", id)
	}
}

// temporary allocates and frees.
func (w *workload) temporary(bytes int) { w.free(w.alloc(bytes)) }

// weights allocates a model of layers and the states of its optimizer.
func (w *workload) weights(layers, width int) {
	for range 3 * layers {
		w.alloc(4 * width * width)
		w.alloc(16 * width * width)
		w.alloc(4 * width)
	}
}

// step trains on so many tokens: forward, where each layer keeps what backward
// frees, with the gradients of all weights at the end.
func (w *workload) step(layers, width, tokens int) {
	var kept, gradients []int
	for range layers {
		for _, n := range []int{2, 6, 2, 8, 8, 2} {
			kept = append(kept, w.alloc(n*width*tokens))
		}
		kept = append(kept, w.alloc(4*tokens))
		w.temporary(8 * width * tokens)
	}
	w.temporary(4 * 32000 * tokens)
	for i := len(kept) - 1; i >= 0; i-- {
		if i%7 == 3 {
			gradients = append(gradients, w.alloc(16*width*width), w.alloc(4*width))
		}
		g := w.alloc(2 * width * tokens)
		w.free(kept[i])
		w.free(g)
	}
	w.free(gradients...)
}

var workloads = map[string]func(*workload){
	"sequences of any length": func(w *workload) {
		w.weights(12, 768)
		for range 20 {
			w.step(12, 768, 256+w.IntN(4096))
		}
	},
	"caches that grow": func(w *workload) {
		w.weights(4, 2048)
		for range 6 {
			batch, from := 1+w.IntN(8), 100+w.IntN(1000)
			caches := make([]int, 32)
			for i := range caches {
				caches[i] = w.alloc(1024 * batch * from)
			}
			for n := range 40 {
				for i := range caches {
					larger := w.alloc(1024 * batch * (from + n + 1))
					w.free(caches[i])
					caches[i] = larger
				}
				w.temporary(4 * 32000 * batch)
			}
			w.free(caches...)
		}
	},
	"images of any size": func(w *workload) {
		w.weights(4, 1024)
		for range 40 {
			var kept []int
			pixels := (480 + w.IntN(800)) * (480 + w.IntN(800))
			for _, channels := range []int{3, 64, 256, 512, 1024, 2048} {
				for range 3 {
					w.temporary(1 << (20 + w.IntN(5)))
					kept = append(kept, w.alloc(2*channels*pixels), w.alloc(8*channels))
				}
				pixels /= 4
			}
			w.free(kept...)
		}
	},
	// Episodes of any length stay until there is no room for them, and each step
	// learns from some of them.
	"a replay buffer": func(w *workload) {
		const room = 700 << 20
		type episode struct{ id, bytes int }
		var buffer []episode
		held := 0
		for range 300 {
			e := episode{bytes: 1 << 20 * (2 + w.IntN(1+w.IntN(60)))}
			var steps []int
			for n := 2 + w.IntN(4); n > 0; n-- {
				steps = append(steps, w.alloc(e.bytes/n+w.IntN(1<<20)))
			}
			for held+e.bytes > room {
				i := w.IntN(len(buffer))
				w.free(buffer[i].id)
				held -= buffer[i].bytes
				buffer[i] = buffer[len(buffer)-1]
				buffer = buffer[:len(buffer)-1]
			}
			e.id = w.alloc(e.bytes)
			held += e.bytes
			buffer = append(buffer, e)
			w.free(steps...)
			w.temporary(1 << 20 * (4 + w.IntN(100)))
		}
	},
	// Threads answer requests of any size, each on a stream of its own.
	"requests on eight streams": func(w *workload) {
		w.weights(4, 512)
		var next [8]func()
		var answer func(stream, layers, bytes, x int)
		answer = func(stream, layers, bytes, x int) {
			next[stream] = func() {
				projected := w.allocOn(stream, 3*bytes)
				attended := w.allocOn(stream, bytes)
				w.free(projected)
				next[stream] = func() {
					wide := w.allocOn(stream, 4*bytes)
					y := w.allocOn(stream, bytes)
					w.free(x, attended, wide)
					if layers--; layers > 0 {
						answer(stream, layers, bytes, y)
					} else {
						w.free(y)
						next[stream] = nil
					}
				}
			}
		}
		for range 8000 {
			stream := w.IntN(len(next))
			if next[stream] == nil {
				bytes := 4096 * (1 + w.IntN(16)) * (16 + w.IntN(496))
				answer(stream, 4, bytes, w.allocOn(stream, bytes))
			}
			next[stream]()
		}
	},
	// Each stream does the same again, after the others.
	"streams that take turns": func(w *workload) {
		var sizes [3][100]int
		for stream := range sizes {
			for i := range sizes[stream] {
				sizes[stream][i] = int(math.Exp2(20 + 7*w.Float64()))
			}
		}
		for range 40 {
			for stream := range sizes {
				var live []int
				for i, n := range sizes[stream] {
					live = append(live, w.allocOn(stream, n))
					if i%3 == 2 {
						w.free(live[len(live)/2])
						live = slices.Delete(live, len(live)/2, len(live)/2+1)
					}
				}
				w.free(live...)
			}
		}
	},
	"graphs of any size": func(w *workload) {
		w.weights(2, 256)
		graphs := make([][2]int, 150) // nodes, edges
		for i := range graphs {
			n := int(1000 * math.Pow(60, w.Float64()))
			graphs[i] = [2]int{n, n * (4 + w.IntN(12))}
		}
		for range 3 {
			w.Shuffle(len(graphs), func(i, j int) { graphs[i], graphs[j] = graphs[j], graphs[i] })
			for _, g := range graphs {
				nodes, edges := 1024*g[0], 128*g[1]
				kept := []int{w.alloc(nodes / 4), w.alloc(edges / 8)}
				for range 4 {
					messages := w.alloc(edges)
					kept = append(kept, w.alloc(nodes))
					w.free(messages)
					kept = append(kept, w.alloc(nodes), w.alloc(nodes/4))
				}
				gradient := w.alloc(nodes)
				for range 4 {
					messages, next := w.alloc(edges), w.alloc(nodes)
					w.free(gradient, messages, kept[len(kept)-1], kept[len(kept)-2], kept[len(kept)-3])
					gradient, kept = next, kept[:len(kept)-3]
				}
				w.free(append(kept, gradient)...)
			}
		}
	},
}

// bounds are those of workloads whose blocks live for more than a step, are of any
// size or of several streams: ratios, and the driver's time with segments and with
// virtual memory in µs.
var bounds = map[string]struct{ segments, vmm, planned, segmentCost, cost float64 }{
	"a replay buffer":    {1.40, 1.08, 1.12, 5_000, 80_000},
	"graphs of any size": {1.27, 1.03, 1.005, 7_000, 11_000},

	"requests on eight streams": {2.3, 1.1, 1.01, 80_000, 600_000},
	"streams that take turns":   {1.2, 1.05, 1.02, 60_000, 100_000},
}

// The short form leaves out the slow one.
func TestOtherWorkloads(t *testing.T) {
	var logs float64
	for name, run := range workloads {
		if !testkit.Long() && name == "a replay buffer" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			w := &workload{Rand: rand.New(rand.NewPCG(1, 2))}
			run(w)
			tr := parse(t, w.text.String())
			torch := TorchModel(tr, 0)
			most, bounded := bounds[name]
			if !bounded {
				most.segments, most.vmm, most.planned = 1.25, 1.03, 1.005
				most.segmentCost, most.cost = 4*torch.DriverUsModelled, max(10*torch.DriverUsModelled, 100_000)
			}
			for _, o := range []struct {
				backing     string
				ratio, cost float64 // the cost in µs
			}{
				{"segments", most.segments, most.segmentCost},
				{"vmm", most.vmm, most.cost},
				{"planned", most.planned, math.Inf(1)},
			} {
				r, err := Run(context.Background(), tr, Options{Backing: o.backing})
				require.NoError(t, err)
				require.Zero(t, r.FailedAllocs)
				t.Logf("%s: %d MiB, %.3f ×, %.0f µs; PyTorch's default %.3f ×, %.0f µs", o.backing, r.PeakRequestedBytes>>20,
					r.Ratio, r.DriverUsModelled, float64(torch.PeakReservedBytes)/float64(r.PeakRequestedBytes), torch.DriverUsModelled)
				require.LessOrEqual(t, r.Ratio, o.ratio, o.backing)
				require.LessOrEqual(t, r.DriverUsModelled, o.cost, o.backing)
				if o.backing == "segments" && !bounded {
					logs += math.Log(r.Ratio)
				}
			}
		})
	}
	require.LessOrEqual(t, math.Exp(logs/float64(len(workloads)-len(bounds))), 1.12, "the mean of segments")
}
