//go:build gpu

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/internal/fakecuda"
)

// A GPU learns what the host learns, from the same seed, and leaves nothing to
// it.
func TestTrainingOnGPU(t *testing.T) {
	for _, flags := range []string{"-shift 0", "-shift 1", "-shift 1 -prefetch", "-shift 0 -optimizer adam"} {
		t.Run(flags, func(t *testing.T) {
			host, _ := losses(t, "-device", "host", flags)
			gpu, r := losses(t, "-device", "cuda", flags)
			if r.FallbackOps > 0 && fakecuda.Loaded() {
				t.Skip("there are no kernels: the stand-in driver was built without a C++ compiler")
			}
			for i := range host {
				if math.Abs(host[i]-gpu[i]) > 1e-3 {
					t.Errorf("epoch %d: loss %v on the host and %v on the GPU", i+1, host[i], gpu[i])
				}
			}
			if r.FallbackOps != 0 || r.LeakedBlocks != 0 || r.DriverAllocsLastEpoch != 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// Graphs learn what steps one by one learn.
func TestTrainingByGraph(t *testing.T) {
	eager, r := losses(t, "-device", "cuda", "-shift 0")
	if r.FallbackOps > 0 && fakecuda.Loaded() {
		t.Skip("there are no kernels: the stand-in driver was built without a C++ compiler")
	}
	graph, r := losses(t, "-device", "cuda", "-shift 0 -graph")
	if !slices.Equal(graph, eager) {
		t.Errorf("losses %v by graphs, and %v without", graph, eager)
	}
	if r.FallbackOps != 0 || r.LeakedBlocks != 0 || r.DriverAllocsLastEpoch != 0 {
		t.Errorf("%+v", r)
	}
}

// losses trains for three epochs and returns their losses and the report.
func losses(t *testing.T, args ...string) (ls []float64, r report) {
	t.Helper()
	args = strings.Fields(strings.Join(args, " "))
	status, stdout, stderr := runMLP(t.Context(), append(args, "-train-samples", "200", "-batch", "20", "-epochs", "3", "-json")...)
	if status != training.ExitOK {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	for line := range strings.Lines(stdout) {
		var i, n int
		var loss float64
		if got, _ := fmt.Sscanf(line, "epoch %d/%d loss %f", &i, &n, &loss); got == 3 {
			ls = append(ls, loss)
		}
	}
	if err := json.Unmarshal([]byte(lastLine(stdout)), &r); err != nil {
		t.Fatal(err)
	}
	if len(ls) != 3 {
		t.Fatalf("losses %v in %s", ls, stdout)
	}
	return ls, r
}
