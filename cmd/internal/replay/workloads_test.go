package replay

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
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

func (w *workload) alloc(bytes int) int {
	fmt.Fprintf(&w.text, "a %d %d 0\n", w.next, bytes)
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

// longLived are the workloads whose blocks live for more than a step or are of any
// size, with the bounds for them: ratios, and the driver's time with segments and with
// virtual memory in µs.
var longLived = map[string]struct{ segments, vmm, planned, segmentCost, cost float64 }{
	"a replay buffer":    {1.40, 1.08, 1.12, 5_000, 80_000},
	"graphs of any size": {1.27, 1.03, 1.005, 7_000, 11_000},
}

// The short form has two of them.
func TestOtherWorkloads(t *testing.T) {
	var logs float64
	for name, run := range workloads {
		if !testkit.Long() && name != "images of any size" && name != "graphs of any size" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			w := &workload{Rand: rand.New(rand.NewPCG(1, 2))}
			run(w)
			tr := parse(t, w.text.String())
			torch := TorchModel(tr, 0)
			most, long := longLived[name]
			if !long {
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
				if o.backing == "segments" && !long {
					logs += math.Log(r.Ratio)
				}
			}
		})
	}
	require.LessOrEqual(t, math.Exp(logs/float64(len(workloads)-len(longLived))), 1.12, "the mean of segments")
}
