package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/model"
)

// configs are those of the allocators, one after the other. None decays, which would
// change the books while the model compares them: the training's does.
var configs = []cupool.Config{
	{},
	{Backing: cupool.BackingSegments},
	{MagazineBytes: -1},
	{History: &cupool.History{SampleBytes: 1 << 20}, MagazineBytes: 1 << 20},
	{Backing: cupool.BackingSegments, MagazineBytes: -1, GarbageCollectionThreshold: 0.5},
	{MinBlock: 256},
	{Strategy: cupool.Segregated},
}

// A soak is one run.
type soak struct {
	options
	driver cupool.Driver
	stop   context.CancelFunc
	stats  []atomic.Pointer[cupool.Stats] // of each worker's allocator, after its last program, and of the training's

	programs, steps, allocators, ooms, trainings atomic.Int64

	mu    sync.Mutex
	found []string
}

// maxText is how many bytes of a finding are printed at most.
const maxText = 8000

// report adds a finding, which ends the run.
func (k *soak) report(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.found = append(k.found, text[:min(len(text), maxText)])
	k.stop()
}

// A summary is what came of a run.
type summary struct {
	OK         bool     `json:"ok"`
	Device     string   `json:"device"`
	Seed       uint64   `json:"seed"`
	Seconds    float64  `json:"seconds"`
	Programs   int64    `json:"programs"`
	Steps      int64    `json:"steps"`
	Allocators int64    `json:"allocators"`
	OOMs       int64    `json:"ooms"` // of allocators that were replaced
	Trainings  int64    `json:"trainings"`
	Samples    int      `json:"samples"`
	Found      []string `json:"found"`
	Grown      []string `json:"grown"`  // what did not stay flat
	Judged     bool     `json:"judged"` // the run was long enough for that to fail it
}

// soakFor runs until its time is over, ctx is done or something is found. It fails
// when it cannot begin.
func soakFor(ctx context.Context, o options, stdout io.Writer) (sum summary, err error) {
	before := processNow()
	d, err := cupool.Open(o.device)
	if err != nil {
		return sum, err
	}
	k := &soak{options: o, driver: d, stats: make([]atomic.Pointer[cupool.Stats], o.workers+1)}
	fmt.Fprintf(stdout, "soak: %s, %v, seed %d\n", d.Name(), o.duration, o.seed)
	t, err := k.newTraining()
	if err != nil {
		return sum, errors.Join(err, d.Close())
	}
	ctx, stop := context.WithTimeout(ctx, o.duration) // from here on: the first training loads the kernels
	defer stop()
	k.stop = stop
	before.Files = processNow().Files // CUDA keeps files open
	start := time.Now()
	var wg sync.WaitGroup
	for i := range k.workers {
		wg.Go(func() { k.work(ctx, i) })
	}
	wg.Go(func() { t.repeat(ctx) })
	samples := k.watchMeters(ctx, stdout)
	stop()
	wg.Wait()
	sum = summary{Device: d.Name(), Seed: o.seed, Seconds: time.Since(start).Seconds(), Samples: len(samples)}
	k.end(t, before)
	sum.Programs, sum.Steps, sum.Allocators = k.programs.Load(), k.steps.Load(), k.allocators.Load()
	sum.OOMs, sum.Trainings = k.ooms.Load(), k.trainings.Load()
	sum.Found, sum.Grown = k.found, grown(samples)
	sum.Judged = sum.Seconds >= shortest.Seconds() || o.between != nil
	sum.OK = len(sum.Found) == 0 && (len(sum.Grown) == 0 || !sum.Judged)
	return sum, nil
}

// work runs programs on one allocator after another until ctx is done. Every second
// worker keeps its first one.
func (k *soak) work(ctx context.Context, worker int) {
	r := rand.New(rand.NewPCG(k.seed, uint64(worker)))
	for n := worker; ctx.Err() == nil; n++ {
		cfg := configs[n%len(configs)]
		cfg.Limit = k.limit / int64(k.workers)
		until := time.Now().Add(time.Duration(1 + r.Int64N(int64(k.duration/8))))
		data := model.Random(r)
		opt := model.Options{Device: k.driver, Config: &cfg, Together: 1 + n%4, Break: k.breaks}
		opt.Next = func(res model.Result) []byte {
			k.count(worker, res)
			if k.between != nil {
				_ = k.between(k.driver)
			}
			if ctx.Err() != nil || worker%2 == 1 && time.Now().After(until) {
				return nil
			}
			data = model.Random(r)
			return data
		}
		k.allocators.Add(1)
		res := model.Run(data, opt)
		for _, err := range res.Errs {
			k.report("worker %d, %v, configuration %d, %d goroutines, program %q\n%s", worker, err, n%len(configs), opt.Together, data, res.Log)
		}
		k.ooms.Add(res.Stats.OOMs)
		k.stats[worker].Store(nil)
	}
}

// count notes what came of a program.
func (k *soak) count(worker int, res model.Result) {
	k.programs.Add(1)
	k.steps.Add(int64(res.Steps))
	k.stats[worker].Store(&res.Stats)
}

// end closes the device and reports what is left.
func (k *soak) end(t *training, before process) {
	if err := t.close(); err != nil {
		k.report("leak: closing the training's allocator: %v", err)
	}
	if h, ok := heldBy(k.driver); ok && (h.Streams != 0 || h.Events != 0 || h.Ranges != 0) {
		k.report("leak: %+v of the device at the end", h)
	}
	if err := k.driver.Close(); err != nil {
		k.report("closing the device: %v", err)
	}
	k.endOf("goroutines", before.Goroutines, func() int64 { return processNow().Goroutines })
	k.endOf("open files", before.Files, func() int64 { return processNow().Files })
}

// endOf waits a while for a number to be what it was before the run.
func (k *soak) endOf(what string, before int64, now func() int64) {
	for range 100 {
		if now() <= before {
			return
		}
		runtime.GC()
		time.Sleep(20 * time.Millisecond)
	}
	k.report("leak: %d %s at the end, %d at the start", now(), what, before)
}
