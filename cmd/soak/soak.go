package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cupool/cupool"
)

// A soak is one run.
type soak struct {
	options
	driver cupool.Driver
	pool   *cupool.Pool
	places []place // of the streams
	pools  [4]poolPlace
	handed chan held // blocks on their way to other goroutines

	// Every operation holds quiet for reading, and quiet moments for writing.
	quiet   sync.RWMutex
	stop    context.CancelFunc
	files   int64        // open ones when the goroutines began
	planned *cupool.Pool // the planner's, which is not in the books
	live    atomic.Int64 // blocks that the program holds
	bytes   atomic.Int64 // in them, as requested

	count counts
	found findings
}

// A place has a stream that is closed and replaced again and again. Whoever
// uses the stream holds the place for reading.
type place struct {
	sync.RWMutex
	s *cupool.Stream
}

// on calls f with the stream that is at a place now, and keeps it open.
func (k *soak) on(i int, f func(s *cupool.Stream) error) error {
	k.places[i].RLock()
	defer k.places[i].RUnlock()
	return f(k.places[i].s)
}

// onBoth calls f with the streams at two places, which may be the same.
func (k *soak) onBoth(i, j int, f func(si, sj *cupool.Stream) error) error {
	if i == j {
		return k.on(i, func(s *cupool.Stream) error { return f(s, s) })
	}
	return k.on(min(i, j), func(*cupool.Stream) error {
		return k.on(max(i, j), func(*cupool.Stream) error { return f(k.places[i].s, k.places[j].s) })
	})
}

// A poolPlace has a private pool that is retired and replaced again and again.
type poolPlace struct {
	sync.RWMutex
	p *cupool.Pool
}

// counts are how often things were done.
type counts struct {
	operations, allocs, frees, ooms, streams, pools, trainings, quiets, sleeps atomic.Int64
}

// findings are what was found.
type findings struct {
	bytes                           atomic.Int64 // of contents that were compared
	corruptions, leaks, falseErrors atomic.Int64
	mu                              sync.Mutex
	texts                           []string // the first of them
}

// What is printed of findings at most: so many, each of so many bytes.
const (
	maxTexts = 20
	maxText  = 2000
)

func (f *findings) add(n *atomic.Int64, text string) {
	n.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.texts) < maxTexts {
		f.texts = append(f.texts, text[:min(len(text), maxText)])
	}
}

func (k *soak) corrupted(text string) { k.note(&k.found.corruptions, "corruption: "+text) }

func (k *soak) leaked(text string) { k.note(&k.found.leaks, "leak: "+text) }

// note counts a finding. One is enough where something is broken on purpose.
func (k *soak) note(n *atomic.Int64, text string) {
	k.found.add(n, text)
	if k.plant != "" {
		k.stop()
	}
}

// tolerate counts err: memory may run out, anything else should not happen. A
// device that is lost ends the run.
func (k *soak) tolerate(what string, err error) {
	switch {
	case err == nil:
	case errors.Is(err, cupool.ErrOutOfMemory):
		k.count.ooms.Add(1)
	default:
		k.note(&k.found.falseErrors, fmt.Sprintf("false error: %s: %v", what, err))
		if errors.Is(err, cupool.ErrDeviceLost) {
			k.stop()
		}
	}
}

// alloc allocates for the books.
func (k *soak) alloc(from cupool.Allocator, size int64, s *cupool.Stream) (cupool.Block, error) {
	b, err := from.Alloc(size, s)
	if err == nil {
		k.enter(b)
	}
	return b, err
}

func (k *soak) enter(b cupool.Block) {
	k.count.allocs.Add(1)
	k.live.Add(1)
	k.bytes.Add(b.Size())
}

// free frees a block for the books.
func (k *soak) free(b cupool.Block, free func(cupool.Block) error) error {
	k.count.frees.Add(1)
	k.live.Add(-1)
	k.bytes.Add(-b.Size())
	return free(b)
}

// A summary is what came of a run.
type summary struct {
	OK          bool     `json:"ok"`
	Device      string   `json:"device"`
	Backing     string   `json:"backing"`
	Seed        uint64   `json:"seed"`
	Seconds     float64  `json:"seconds"`
	Operations  int64    `json:"operations"`
	Allocs      int64    `json:"allocs"`
	Frees       int64    `json:"frees"`
	Hits        int64    `json:"hits"`
	MagazineHit int64    `json:"magazine_hits"`
	OOMs        int64    `json:"ooms"`
	Streams     int64    `json:"streams_made"`
	Pools       int64    `json:"pools_made"`
	Trainings   int64    `json:"trainings"`
	Quiets      int64    `json:"quiet_checks"`
	Sleeps      int64    `json:"sleeps"`
	Compared    int64    `json:"compared_bytes"`
	Samples     int      `json:"samples"`
	Corruptions int64    `json:"corruptions"`
	Leaks       int64    `json:"leaks"`
	FalseErrors int64    `json:"false_errors"`
	Grown       []string `json:"grown"`  // what did not stay flat
	Judged      bool     `json:"judged"` // the run was long enough for that to fail it
	Found       []string `json:"found"`  // the first findings
}

func (s *summary) verdict() string {
	lines := []string{fmt.Sprintf("%d corruptions, %d leaks, %d false errors, %d things that grew",
		s.Corruptions, s.Leaks, s.FalseErrors, len(s.Grown))}
	return strings.Join(slices.Concat(lines, s.Found, s.Grown), "\n  ")
}

// soakFor runs until its time is over or ctx is done. It fails when it cannot
// begin.
func soakFor(ctx context.Context, o options, stdout io.Writer) (sum summary, err error) {
	before := processNow()
	d, err := cupool.Open(o.device)
	if err != nil {
		return sum, err
	}
	pool, err := cupool.New(cupool.Config{Driver: d, Limit: o.limit, Backing: o.backing, Decay: time.Second})
	if err != nil {
		return sum, errors.Join(err, d.Close())
	}
	k := &soak{options: o, driver: d, pool: pool, places: make([]place, o.streams), handed: make(chan held, 4*o.workers)}
	sum = summary{Device: d.Name(), Backing: pool.Config().Backing.String(), Seed: o.seed}
	fmt.Fprintf(stdout, "soak: %s, %s, %v, seed %d\n", sum.Device, sum.Backing, o.duration, o.seed)

	start := time.Now()
	samples, err := k.all(ctx, stdout)
	if err != nil {
		return sum, errors.Join(err, pool.Close(), d.Close())
	}
	sum.Seconds = time.Since(start).Seconds()
	st := pool.Stats()
	sum.Hits, sum.MagazineHit = st.Hits, st.MagazineHits
	k.end(before)

	c, f := &k.count, &k.found
	sum.Operations, sum.Allocs, sum.Frees, sum.OOMs = c.operations.Load(), c.allocs.Load(), c.frees.Load(), c.ooms.Load()
	sum.Streams, sum.Pools, sum.Trainings = c.streams.Load(), c.pools.Load(), c.trainings.Load()
	sum.Quiets, sum.Sleeps, sum.Compared = c.quiets.Load(), c.sleeps.Load(), f.bytes.Load()
	sum.Corruptions, sum.Leaks, sum.FalseErrors = f.corruptions.Load(), f.leaks.Load(), f.falseErrors.Load()
	sum.Samples, sum.Found = len(samples), f.texts
	sum.Grown = grown(samples)
	sum.Judged = sum.Seconds >= shortest.Seconds() || o.plant != ""
	sum.OK = sum.Corruptions+sum.Leaks+sum.FalseErrors == 0 && (len(sum.Grown) == 0 || !sum.Judged)
	return sum, nil
}

// all runs everything at once until the time is over, and takes samples.
func (k *soak) all(ctx context.Context, stdout io.Writer) ([]sample, error) {
	t, err := k.newTraining()
	if err != nil {
		return nil, err
	}
	for i := range k.places {
		if k.places[i].s, err = k.newStream(); err != nil {
			return nil, err
		}
	}
	k.files = processNow().Files // CUDA keeps files open
	ctx, k.stop = context.WithTimeout(ctx, k.duration)
	defer k.stop()
	var wg sync.WaitGroup
	for i := range k.workers {
		wg.Go(func() { k.work(ctx, i) })
	}
	for i, chore := range []func(context.Context, *rand.Rand){
		k.replaceStreams, k.replacePools, k.doChores, k.hog, k.beQuiet, k.planIterations, t.repeat,
	} {
		wg.Go(func() { chore(ctx, k.random(1000+i)) })
	}
	samples, err := k.watchMeters(ctx, stdout)
	k.stop()
	wg.Wait()
	close(k.handed)
	for h := range k.handed {
		k.tolerate("free", k.free(h.Block, k.pool.Free))
	}
	k.tolerate("closing the training's stream", t.close())
	return samples, err
}

// random returns random numbers for one of the goroutines.
func (k *soak) random(i int) *rand.Rand { return rand.New(rand.NewPCG(k.seed, uint64(i))) }

// end gives everything back and reports what is left.
func (k *soak) end(before process) {
	var errs []error
	for i := range k.places {
		errs = append(errs, k.places[i].s.Close())
	}
	for i := range k.pools {
		if p := k.pools[i].p; p != nil {
			errs = append(errs, p.Retire())
		}
	}
	k.deferred()
	errs = append(errs, k.pool.EmptyCache(), k.pool.Check())
	k.tolerate("end", errors.Join(errs...))
	if n := len(k.pool.Pools()); n > 0 {
		k.leaked(fmt.Sprintf("%d pools that were retired and hold no block are still there", n))
	}
	if st := k.pool.Stats(); st.LiveBytes != 0 || st.All.ReservedBytes.Current != 0 {
		k.leaked(fmt.Sprintf("%d bytes live and %d reserved at the end:\n%s", st.LiveBytes, st.All.ReservedBytes.Current, k.pool.Snapshot().Layout()))
	}
	if h, ok := heldBy(k.driver); ok && h.Streams != 0 {
		k.leaked(fmt.Sprintf("%d streams of the device at the end", h.Streams))
	}
	if err := k.pool.Close(); err != nil {
		k.leaked("closing the allocator: " + err.Error())
	}
	if h, ok := heldBy(k.driver); ok && (h.Events != 0 || h.Ranges != 0) {
		k.leaked(fmt.Sprintf("%d events and %d ranges of addresses after the allocator was closed", h.Events, h.Ranges))
	}
	k.tolerate("closing the device", k.driver.Close())
	k.endOf("goroutines", before.Goroutines, func() int64 { return processNow().Goroutines })
	k.endOf("open files", k.files, func() int64 { return processNow().Files })
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
	k.leaked(fmt.Sprintf("%d %s at the end, %d at the start", now(), what, before))
}
