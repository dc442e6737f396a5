package main

import "github.com/cupool/cupool/bench/internal/results"

// row is a line of the table: what is compared under one name.
type row struct {
	work string
	ours results.Metric
	peer results.Metric // of PyTorch and cudaMallocAsync; no name: they have none
	goal float64        // at most; 0: none, unless zero
	zero bool           // the goal is 0
}

// ns is a benchmark's time.
func ns(name string) results.Metric { return results.Metric{Name: name, Unit: "ns/op"} }

// same is a row whose peers have a benchmark of the same name.
func same(work, name string, goal float64) row {
	return row{work: work, ours: ns(name), peer: ns(name), goal: goal}
}

// parallel is a row of so many goroutines or threads.
func parallel(work, name string, procs int, goal float64) row {
	m := ns(name)
	m.Procs = procs
	return row{work: work, ours: m, peer: m, goal: goal}
}

// The rows are those of the goals, with some beside them for comparison.
var rows = []row{
	same("allocate + free, cached, 512 B", "Hit/size=512", 25),
	same("allocate + free, cached, 1 MiB", "Hit/size=1MiB", 25),
	same("allocate + free, cached, 32 MiB", "Hit/size=32MiB", 25),
	{work: "the same 1 MiB; under cudaMallocAsync: cudaMalloc + cudaFree", ours: ns("Hit/size=1MiB"), peer: ns("DriverPair/size=1MiB")},
	{work: "1,000 live blocks of random sizes, a step; ours with virtual memory", ours: ns("RandomLive1000/backing=auto"), peer: ns("RandomLive1000"), goal: 100},
	{work: "the same; ours with segments", ours: ns("RandomLive1000/backing=segments"), peer: ns("RandomLive1000"), goal: 100},
	parallel("allocate + free 1 MiB on one stream, wall ÷ pairs: 1 goroutine", "ParallelHit/stream=shared", 1, 0),
	parallel("2 goroutines", "ParallelHit/stream=shared", 2, 0),
	parallel("4 goroutines", "ParallelHit/stream=shared", 4, 0),
	parallel("8 goroutines", "ParallelHit/stream=shared", 8, 0),
	parallel("16 goroutines", "ParallelHit/stream=shared", 16, 5),
	parallel("the same, each on its own stream: 1 goroutine", "ParallelHit/stream=own", 1, 0),
	parallel("16 goroutines", "ParallelHit/stream=own", 16, 3),
	same("allocate 1 MiB, RecordStream of a second stream, free; the device idle", "CrossStream/device=idle", 150),
	same("the same behind a busy device, in batches of 64", "CrossStream/device=busy", 150),
	{work: "Engine.Alloc + Engine.Free, 1 MiB, without the zeroing", ours: ns("EngineAllocFree/zeroing=off/bytes=1048576"), goal: 60},
	{work: "the same with the zeroing", ours: ns("EngineAllocFree/zeroing=on/bytes=1048576")},
	{work: "driver calls of a hit (number)", ours: results.Metric{Name: "Hit/size=1MiB", Unit: "driver-calls/op"}, zero: true},
	{work: "Go allocations of a hit (number)", ours: results.Metric{Name: "Hit/size=1MiB", Unit: "allocs/op"}, zero: true},
	{work: "a miss that splits a cached block, with the free that merges it", ours: ns("MissSplit"), goal: 200},
	{work: "Trim of 1,000 cached segments, without the driver", ours: ns("Trim1000"), goal: 100_000},
	{work: "the driver's part of that Trim", ours: results.Metric{Name: "Trim1000", Unit: "driver-ns/op"}},
	{work: "ruler: a mutex pair", ours: ns("Ruler/mutex-pair")},
	{work: "ruler: an atomic add", ours: ns("Ruler/atomic-add")},
}
