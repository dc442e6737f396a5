package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Imports go from the top of the house downwards, in both builds.
func TestArrows(t *testing.T) {
	for _, tags := range []string{"", "gpu"} {
		pkgs, err := load("../..", tags)
		require.NoError(t, err)
		require.Greater(t, len(pkgs), 20)
		for _, err := range checkArrows(pkgs) {
			t.Errorf("with -tags %q: %v", tags, err)
		}
	}
}

func TestCheckArrow(t *testing.T) {
	for name, c := range map[string]struct{ from, to, wrong string }{
		"down":                     {".", "internal/block", ""},
		"from a program":           {"examples/mlp", ".", ""},
		"from a program's package": {"examples/internal/training", "internal/mnist", ""},
		"inside a room":            {"internal/hostdev", "internal/hostdev/vspace", ""},
		"back inside a room":       {"internal/mnist/subset", "internal/mnist", ""},
		"an only that allows it":   {"gorgoniavm", "nn", ""},
		"up from the ground":       {"internal/block", ".", "internal/block (blocks, devices) imports . (the pool), which stands above it: arrows go only downwards"},
		"up to a program":          {".", "examples/mlp", ". (the pool) imports examples/mlp (programs), which stands above it: arrows go only downwards"},
		"up from a sub-package":    {"internal/hostdev/vspace", ".", "internal/hostdev/vspace (blocks, devices) imports . (the pool), which stands above it: arrows go only downwards"},
		"the root's own parts":     {"internal/heap", ".", "internal/heap (parts, tools) imports . (the pool), which stands above it: arrows go only downwards"},
		"sideways":                 {"internal/heap", "internal/epoch", "internal/heap imports internal/epoch, which stands beside it (parts, tools): arrows go only downwards"},
		"sideways over the pool":   {"planner", "arena", "planner imports arena, which stands beside it (over the pool): arrows go only downwards"},
		"an only that forbids it":  {"gorgoniavm", "planner", "gorgoniavm imports planner, but may import only: nn . internal/callstack internal/layers internal/nvtx internal/tensorop"},
		"from nowhere":             {"internal/common", ".", "package internal/common has no place in the house: give it one in internal/house/table.go"},
		"to nowhere":               {".", "util", "package util has no place in the house: give it one in internal/house/table.go"},
		"a name that begins alike": {".", "internal/blocks", "package internal/blocks has no place in the house: give it one in internal/house/table.go"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkArrow(c.from, c.to); c.wrong == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.wrong)
			}
		})
	}
}

func TestCheckOutside(t *testing.T) {
	assert.NoError(t, checkOutside(".", "cu_bridge.go", "gorgonia.org/cu"))
	assert.EqualError(t, checkOutside(".", "cu_vmm.go", "gorgonia.org/cu"), "./cu_vmm.go imports gorgonia.org/cu, which only cu_bridge.go internal/cubridge may")
	assert.NoError(t, checkOutside("internal/cubridge", "calls.go", "gorgonia.org/cu"))
	assert.Error(t, checkOutside("cuda", "cu_bridge.go", "gorgonia.org/cu"))
	assert.Error(t, checkOutside("cuda", "driver.go", "gorgonia.org/cu/blas"))
	assert.Error(t, checkOutside(".", "tensor_graph.go", "gorgonia.org/gorgonia"))
	assert.Error(t, checkOutside("internal/heap", "heap.go", "gorgonia.org/tensor"))
	assert.NoError(t, checkOutside("gorgoniavm/internal/program", "order.go", "gorgonia.org/gorgonia"))
	assert.NoError(t, checkOutside("internal/heap", "heap.go", "sync"))
}

// checkArrows finds an arrow in a file's imports, and names it once.
func TestCheckArrows(t *testing.T) {
	up := file{name: "a.go", imports: []string{"fmt", module, module + "/internal/device"}}
	wrong := checkArrows([]pkg{
		{dir: "internal/block", files: []file{up, up}},
		{dir: "internal/common"},
		{dir: "cuda", files: []file{{name: "driver.go", imports: []string{"gorgonia.org/cu"}}}},
	})
	require.Len(t, wrong, 3)
	assert.ErrorContains(t, wrong[0], "internal/block (blocks, devices) imports . (the pool)")
	assert.ErrorContains(t, wrong[1], "package internal/common has no place")
	assert.ErrorContains(t, wrong[2], "cuda/driver.go imports gorgonia.org/cu, which only cu_bridge.go internal/cubridge may")
}

// No room stands twice in the table, and rooms named in only stand below.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range house {
		for _, r := range f.rooms {
			assert.False(t, seen[r.dir], "%s stands twice", r.dir)
			seen[r.dir] = true
			for _, o := range strings.Fields(r.only) {
				assert.NoError(t, checkArrow(r.dir, o))
			}
		}
	}
	for _, who := range outside {
		for _, w := range strings.Fields(who) {
			_, _, ok := place(w)
			assert.True(t, ok || w == "cu_bridge.go", w)
		}
	}
}
