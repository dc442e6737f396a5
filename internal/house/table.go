package main

import "strings"

// A floor is a row of docs/layers.svg. Its rooms may import only what stands
// on lower floors.
type floor struct {
	name  string
	rooms []room
}

// A room is a directory with the packages below it, which may import each
// other. The root, ".", is the one package only.
type room struct {
	dir  string
	only string // where set: the rooms that it may import, by name
}

// house is who may import whom, from the top down. Rooms that do not exist yet
// have their place already.
var house = []floor{
	{"programs", []room{
		{dir: "examples"}, {dir: "cmd/cupool"}, {dir: "bench"}, {dir: "internal/house"}, {dir: "internal/mutants"}, {dir: "internal/soak"},
	}},
	{"Gorgonia, tools", []room{
		{dir: "gorgoniavm", only: "nn . internal/callstack internal/layers internal/nvtx internal/tensorop"},
		{dir: "prom"}, {dir: "otelmetrics"}, {dir: "nccl"},
		{dir: "internal/replay"}, {dir: "internal/enginetest"}, {dir: "internal/doctor", only: "internal/cudatoolkit internal/bytesize"},
	}},
	{"over the pool", []room{
		{dir: "nn", only: ". internal/tensorop internal/layers internal/philox internal/device internal/kernels"},
		{dir: "planner"}, {dir: "arena"}, {dir: "native"}, {dir: "adaptor"},
		{dir: "debug"}, {dir: "internal/metrics"}, {dir: "dist"}, {dir: "devices"}, {dir: "ipc"}, {dir: "cupooltest"},
		{dir: "internal/conformance"}, {dir: "internal/model", only: ". snapshot internal/simdev internal/testlevel"}, {dir: "internal/fardev"},
	}},
	{"the pool", []room{
		{dir: "."},
	}},
	{"parts, tools", []room{
		{dir: "internal/tensorop", only: "internal/callstack internal/layers internal/philox internal/device internal/cublas internal/kernels internal/cudadrv"},
		{dir: "cuda", only: "internal/cubridge internal/device internal/cublas internal/kernels internal/cudadrv internal/realtime"},
		{dir: "internal/heap", only: "internal/vmem internal/ledger internal/magazine internal/block internal/addrmap internal/device internal/sizeclass internal/bytesize internal/nvtx internal/relaxed"},
		{dir: "internal/epoch", only: "internal/block internal/device internal/realtime internal/relaxed internal/atomic"},
		{dir: "internal/sanitize", only: "internal/block internal/device internal/origins"},
		{dir: "internal/oomhint", only: "internal/bytesize snapshot"},
		{dir: "internal/history", only: "internal/origins internal/device snapshot"},
		{dir: "internal/trace"}, {dir: "internal/chart"}, {dir: "internal/cudatoolkit"},
		{dir: "internal/exampletest"}, {dir: "internal/mnist"}, {dir: "internal/progress"}, {dir: "testdata/mnist"},
	}},
	{"caches, maths", []room{
		{dir: "snapshot", only: "internal/device internal/bytesize internal/gunzip internal/pickle"},
		{dir: "internal/magazine"}, {dir: "internal/plan"}, {dir: "internal/origins"}, {dir: "internal/gcpressure"},
		{dir: "internal/decay"}, {dir: "internal/budget", only: "internal/device internal/realtime"},
		{dir: "internal/vmem"}, {dir: "internal/ledger", only: "internal/invariant internal/relaxed internal/atomic"},
		{dir: "internal/layers"}, {dir: "internal/philox"}, {dir: "internal/confenv", only: "internal/bytesize internal/device internal/sizeclass"},
		{dir: "internal/graphmem", only: "internal/device"},
		{dir: "internal/rarelog"}, {dir: "internal/simdev"}, {dir: "internal/cubridge"}, {dir: "internal/gputest"},
	}},
	{"blocks, devices", []room{
		{dir: "internal/block"}, {dir: "internal/addrmap"}, {dir: "internal/hostdev"},
		{dir: "internal/kernels"}, {dir: "internal/cublas"}, {dir: "internal/allocbound"},
		{dir: "internal/gunzip", only: "internal/bytesize"}, {dir: "internal/pickle"},
	}},
	{"ground", []room{
		{dir: "internal/device"}, {dir: "internal/cudadrv"}, {dir: "internal/ncclapi"}, {dir: "internal/nvtx"},
		{dir: "internal/sizeclass"}, {dir: "internal/bytesize"}, {dir: "internal/relaxed"}, {dir: "internal/realtime"}, {dir: "internal/callstack"}, {dir: "internal/testlevel"}, {dir: "internal/ptytest"}, {dir: "internal/fakecuda"},
	}},
	{"words", []room{
		{dir: "internal/atomic"},
	}},
}

// outside is who may import the modules whose use is kept to few places. An
// entry with .go is one file.
var outside = map[string]string{
	"github.com/prometheus/client_golang": "prom",
	"go.opentelemetry.io/otel":            "otelmetrics",
	"gorgonia.org/cu":                     "cu_bridge.go internal/cubridge",
	"gorgonia.org/gorgonia":               "gorgoniavm examples",
	"gorgonia.org/tensor":                 ". nn dist internal/tensorop internal/enginetest gorgoniavm examples internal/soak",
}

// place returns the room of a package, given by its directory below the
// module's root, and the number of its floor, the top one being 0.
func place(dir string) (r room, level int, ok bool) {
	for i, f := range house {
		for _, x := range f.rooms {
			if within(dir, x.dir) && (!ok || len(x.dir) > len(r.dir)) {
				r, level, ok = x, i, true
			}
		}
	}
	return r, level, ok
}

func within(dir, parent string) bool {
	return dir == parent || parent != "." && strings.HasPrefix(dir, parent+"/")
}
