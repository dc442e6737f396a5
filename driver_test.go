package cupool_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// countingDriver is a device for these tests: memory that is only numbers,
// placed by first fit, calls that are counted and can be made to fail, and
// streams that stay busy for as long as a test wants. What is submitted to a
// stream that was not made busy is done at once.
type countingDriver struct {
	mu       sync.Mutex
	capacity int64
	used     int64
	mem      map[cupool.Ptr]int64
	streams  map[cupool.StreamHandle]*queue
	events   map[cupool.EventHandle]point
	handles  uintptr
	calls    map[string]int
	fail     map[string]error  // by call: what it returns instead
	freed    []int64           // sizes, in the order of MemFree
	hook     func(call string) // runs before a call, without the lock
	fresh    bool              // never use an address twice
	next     cupool.Ptr        // the end of what was ever allocated
	base     cupool.Ptr        // the first address; 0: 1<<40
	closed   bool
}

// queue is a stream: pieces of work submitted and done.
type queue struct {
	submitted, done int
	busy            bool
}

// point is what an event marks.
type point struct {
	on *queue
	at int
}

func newCountingDriver(capacity int64) *countingDriver {
	return &countingDriver{
		capacity: capacity,
		mem:      map[cupool.Ptr]int64{},
		streams:  map[cupool.StreamHandle]*queue{0: {}},
		events:   map[cupool.EventHandle]point{},
		calls:    map[string]int{},
		fail:     map[string]error{},
	}
}

// newPool returns an allocator over a new countingDriver. Without another
// word it has no magazines, so that placement follows from the calls alone.
// With them the test has one processor, so that there is one set of them.
func newPool(t testing.TB, capacity int64, change ...func(*cupool.Config)) (*cupool.Pool, *countingDriver) {
	c, d := newParallelPool(t, capacity, append(change, func(cfg *cupool.Config) {
		if cfg.MagazineBytes >= 0 {
			old := runtime.GOMAXPROCS(1)
			t.Cleanup(func() { runtime.GOMAXPROCS(old) })
		}
	})...)
	return c, d
}

// newParallelPool is newPool on as many processors as there are.
func newParallelPool(t testing.TB, capacity int64, change ...func(*cupool.Config)) (*cupool.Pool, *countingDriver) {
	d := newCountingDriver(capacity)
	cfg := cupool.Config{Driver: d, MagazineBytes: -1}
	for _, f := range change {
		f(&cfg)
	}
	c, err := cupool.New(cfg)
	require.NoError(t, err)
	return c, d
}

func withMagazines(cfg *cupool.Config) { cfg.MagazineBytes = 0 }

// enter counts a call and takes the lock.
func (d *countingDriver) enter(call string) error {
	if f := d.hook; f != nil {
		f(call)
	}
	d.mu.Lock()
	d.calls[call]++
	if d.closed {
		return cupool.ErrClosed
	}
	return d.fail[call]
}

// count returns how often a call was made, total all of them.
func (d *countingDriver) count(call string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[call]
}

func (d *countingDriver) total() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.calls {
		n += k
	}
	return n
}

// failing makes a call return an error until it is set to nil.
func (d *countingDriver) failing(call string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail[call] = err
}

// busy gives a stream work that takes until idle.
func (d *countingDriver) busy(s *cupool.Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.streams[s.Handle()]
	q.busy = true
	q.submitted++
}

func (d *countingDriver) idle(s *cupool.Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.streams[s.Handle()]
	q.busy = false
	q.done = q.submitted
}

// step ends the oldest work of a busy stream.
func (d *countingDriver) step(s *cupool.Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.streams[s.Handle()].done++
}

// isBusy tells whether somebody waited for the stream's work.
func (d *countingDriver) isBusy(s *cupool.Stream) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.streams[s.Handle()]
	return q.done < q.submitted
}

func (d *countingDriver) submit(call string, s cupool.StreamHandle) error {
	defer d.mu.Unlock()
	if err := d.enter(call); err != nil {
		return err
	}
	q := d.streams[s]
	if q == nil {
		return errors.New("no such stream")
	}
	q.submitted++
	if !q.busy {
		q.done = q.submitted
	}
	return nil
}

func (d *countingDriver) Name() string         { return "counting" }
func (d *countingDriver) HostAccessible() bool { return false }

func (d *countingDriver) MemAlloc(size int64) (cupool.Ptr, error) {
	defer d.mu.Unlock()
	if err := d.enter("MemAlloc"); err != nil {
		return 0, err
	}
	if size > d.capacity-d.used {
		return 0, fmt.Errorf("%w: %d of %d bytes used", cupool.ErrOutOfMemory, d.used, d.capacity)
	}
	at := cmp.Or(d.base, 1<<40)
	if d.fresh {
		at = max(at, d.next)
	}
	for _, p := range slices.Sorted(maps.Keys(d.mem)) {
		if at+cupool.Ptr(size) <= p {
			break
		}
		at = max(at, p+cupool.Ptr(d.mem[p]))
	}
	d.next = max(d.next, at+cupool.Ptr(size))
	d.mem[at] = size
	d.used += size
	return at, nil
}

func (d *countingDriver) MemFree(p cupool.Ptr) error {
	defer d.mu.Unlock()
	if err := d.enter("MemFree"); err != nil {
		return err
	}
	size, ok := d.mem[p]
	if !ok {
		return cupool.ErrInvalidRange
	}
	delete(d.mem, p)
	d.used -= size
	d.freed = append(d.freed, size)
	return nil
}

func (d *countingDriver) MemInfo() (free, total int64, err error) {
	defer d.mu.Unlock()
	if err := d.enter("MemInfo"); err != nil {
		return 0, 0, err
	}
	return d.capacity - d.used, d.capacity, nil
}

func (d *countingDriver) NewStream() (cupool.StreamHandle, error) {
	defer d.mu.Unlock()
	if err := d.enter("NewStream"); err != nil {
		return 0, err
	}
	d.handles++
	h := cupool.StreamHandle(d.handles)
	d.streams[h] = new(queue)
	return h, nil
}

func (d *countingDriver) DestroyStream(s cupool.StreamHandle) error {
	defer d.mu.Unlock()
	if err := d.enter("DestroyStream"); err != nil {
		return err
	}
	delete(d.streams, s)
	return nil
}

func (d *countingDriver) SyncStream(s cupool.StreamHandle) error {
	defer d.mu.Unlock()
	if err := d.enter("SyncStream"); err != nil {
		return err
	}
	q := d.streams[s]
	q.done = q.submitted
	return nil
}

func (d *countingDriver) NewEvent() (cupool.EventHandle, error) {
	defer d.mu.Unlock()
	if err := d.enter("NewEvent"); err != nil {
		return 0, err
	}
	d.handles++
	h := cupool.EventHandle(d.handles)
	d.events[h] = point{}
	return h, nil
}

func (d *countingDriver) DestroyEvent(e cupool.EventHandle) error {
	defer d.mu.Unlock()
	if err := d.enter("DestroyEvent"); err != nil {
		return err
	}
	delete(d.events, e)
	return nil
}

func (d *countingDriver) RecordEvent(e cupool.EventHandle, s cupool.StreamHandle) error {
	defer d.mu.Unlock()
	if err := d.enter("RecordEvent"); err != nil {
		return err
	}
	q := d.streams[s]
	d.events[e] = point{q, q.submitted}
	return nil
}

func (d *countingDriver) QueryEvent(e cupool.EventHandle) (bool, error) {
	defer d.mu.Unlock()
	if err := d.enter("QueryEvent"); err != nil {
		return false, err
	}
	at := d.events[e]
	return at.on == nil || at.on.done >= at.at, nil
}

func (d *countingDriver) SyncEvent(e cupool.EventHandle) error {
	defer d.mu.Unlock()
	if err := d.enter("SyncEvent"); err != nil {
		return err
	}
	if at := d.events[e]; at.on != nil {
		at.on.done = max(at.on.done, at.at)
	}
	return nil
}

func (d *countingDriver) StreamWaitEvent(s cupool.StreamHandle, _ cupool.EventHandle) error {
	return d.submit("StreamWaitEvent", s)
}

func (d *countingDriver) Copy(_, _ cupool.Ptr, _ int64, s cupool.StreamHandle) error {
	return d.submit("Copy", s)
}

func (d *countingDriver) CopyIn(_ cupool.Ptr, _ []byte, s cupool.StreamHandle) error {
	return d.submit("CopyIn", s)
}

func (d *countingDriver) CopyOut(_ []byte, _ cupool.Ptr, s cupool.StreamHandle) error {
	return cmp.Or(d.submit("CopyOut", s), d.SyncStream(s))
}

func (d *countingDriver) Memset(_ cupool.Ptr, _ byte, _ int64, s cupool.StreamHandle) error {
	return d.submit("Memset", s)
}

func (d *countingDriver) Close() error {
	defer d.mu.Unlock()
	err := d.enter("Close")
	d.closed = true
	return err
}
