package pooltest

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

// Driver is a device for tests of the pool: memory that is only numbers, placed
// by first fit, calls that are counted and can be made to fail, and
// streams that stay busy for as long as a test wants. What is submitted to a
// stream that was not made busy is done at once.
type Driver struct {
	mu       sync.Mutex
	Capacity int64
	Used     int64
	Mem      map[cupool.Ptr]int64
	streams  map[cupool.StreamHandle]*queue
	events   map[cupool.EventHandle]point
	handles  uintptr
	unused   []cupool.StreamHandle
	calls    map[string]int
	fail     map[string]error  // by call: what it returns instead
	Freed    []int64           // sizes, in the order of MemFree
	Hook     func(call string) // runs before a call, without the lock
	Fresh    bool              // never use an address twice
	Reuse    bool              // give the handle of a destroyed stream to the next
	next     cupool.Ptr        // the end of what was ever allocated
	Base     cupool.Ptr        // the first address; 0: 1<<40
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

// NewDriver returns a device of so many bytes.
func NewDriver(capacity int64) *Driver {
	return &Driver{
		Capacity: capacity,
		Mem:      map[cupool.Ptr]int64{},
		streams:  map[cupool.StreamHandle]*queue{0: {}},
		events:   map[cupool.EventHandle]point{},
		calls:    map[string]int{},
		fail:     map[string]error{},
	}
}

// New returns an allocator over a new Driver. Without another
// word it has no magazines, so that placement follows from the calls alone.
// With them the test has one processor, so that there is one set of them.
func New(t testing.TB, capacity int64, change ...func(*cupool.Config)) (*cupool.Pool, *Driver) {
	c, d := NewParallel(t, capacity, append(change, func(cfg *cupool.Config) {
		if cfg.MagazineBytes >= 0 {
			old := runtime.GOMAXPROCS(1)
			t.Cleanup(func() { runtime.GOMAXPROCS(old) })
		}
	})...)
	return c, d
}

// NewParallel is New on as many processors as there are.
func NewParallel(t testing.TB, capacity int64, change ...func(*cupool.Config)) (*cupool.Pool, *Driver) {
	d := NewDriver(capacity)
	cfg := cupool.Config{Driver: d, MagazineBytes: -1}
	for _, f := range change {
		f(&cfg)
	}
	c, err := cupool.New(cfg)
	require.NoError(t, err)
	return c, d
}

// WithMagazines gives the pool of New magazines.
func WithMagazines(cfg *cupool.Config) { cfg.MagazineBytes = 0 }

// enter counts a call and takes the lock.
func (d *Driver) enter(call string) error {
	if f := d.Hook; f != nil {
		f(call)
	}
	d.mu.Lock()
	d.calls[call]++
	if d.closed {
		return cupool.ErrClosed
	}
	return d.fail[call]
}

// Count returns how often a call was made.
func (d *Driver) Count(call string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[call]
}

// Total returns how many calls were made.
func (d *Driver) Total() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.calls {
		n += k
	}
	return n
}

// Handles returns how many streams and events were made and not destroyed.
func (d *Driver) Handles() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.streams) - 1 + len(d.events)
}

// Fail makes a call return an error until that is set to nil.
func (d *Driver) Fail(call string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail[call] = err
}

// Busy gives a stream work that takes until idle.
func (d *Driver) Busy(s *cupool.Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.streams[s.Handle()]
	q.busy = true
	q.submitted++
}

// Idle ends all work of a stream.
func (d *Driver) Idle(s *cupool.Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.streams[s.Handle()]
	q.busy = false
	q.done = q.submitted
}

// Step ends the oldest work of a busy stream.
func (d *Driver) Step(s *cupool.Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.streams[s.Handle()].done++
}

// IsBusy tells whether somebody waited for the stream's work.
func (d *Driver) IsBusy(s *cupool.Stream) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.streams[s.Handle()]
	return q.done < q.submitted
}

func (d *Driver) submit(call string, s cupool.StreamHandle) error {
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

func (d *Driver) Name() string         { return "counting" }
func (d *Driver) HostAccessible() bool { return false }

func (d *Driver) MemAlloc(size int64) (cupool.Ptr, error) {
	defer d.mu.Unlock()
	if err := d.enter("MemAlloc"); err != nil {
		return 0, err
	}
	if size > d.Capacity-d.Used {
		return 0, fmt.Errorf("%w: %d of %d bytes used", cupool.ErrOutOfMemory, d.Used, d.Capacity)
	}
	at := cmp.Or(d.Base, 1<<40)
	if d.Fresh {
		at = max(at, d.next)
	}
	for _, p := range slices.Sorted(maps.Keys(d.Mem)) {
		if at+cupool.Ptr(size) <= p {
			break
		}
		at = max(at, p+cupool.Ptr(d.Mem[p]))
	}
	d.next = max(d.next, at+cupool.Ptr(size))
	d.Mem[at] = size
	d.Used += size
	return at, nil
}

func (d *Driver) MemFree(p cupool.Ptr) error {
	defer d.mu.Unlock()
	if err := d.enter("MemFree"); err != nil {
		return err
	}
	size, ok := d.Mem[p]
	if !ok {
		return cupool.ErrInvalidRange
	}
	delete(d.Mem, p)
	d.Used -= size
	d.Freed = append(d.Freed, size)
	return nil
}

func (d *Driver) MemInfo() (free, total int64, err error) {
	defer d.mu.Unlock()
	if err := d.enter("MemInfo"); err != nil {
		return 0, 0, err
	}
	return d.Capacity - d.Used, d.Capacity, nil
}

func (d *Driver) NewStream() (cupool.StreamHandle, error) {
	defer d.mu.Unlock()
	if err := d.enter("NewStream"); err != nil {
		return 0, err
	}
	h := cupool.StreamHandle(d.handles + 1)
	if n := len(d.unused); n > 0 && d.Reuse {
		h, d.unused = d.unused[n-1], d.unused[:n-1]
	} else {
		d.handles++
	}
	d.streams[h] = new(queue)
	return h, nil
}

func (d *Driver) DestroyStream(s cupool.StreamHandle) error {
	defer d.mu.Unlock()
	if err := d.enter("DestroyStream"); err != nil {
		return err
	}
	delete(d.streams, s)
	d.unused = append(d.unused, s)
	return nil
}

func (d *Driver) SyncStream(s cupool.StreamHandle) error {
	defer d.mu.Unlock()
	if err := d.enter("SyncStream"); err != nil {
		return err
	}
	q := d.streams[s]
	q.done = q.submitted
	return nil
}

func (d *Driver) NewEvent() (cupool.EventHandle, error) {
	defer d.mu.Unlock()
	if err := d.enter("NewEvent"); err != nil {
		return 0, err
	}
	d.handles++
	h := cupool.EventHandle(d.handles)
	d.events[h] = point{}
	return h, nil
}

func (d *Driver) DestroyEvent(e cupool.EventHandle) error {
	defer d.mu.Unlock()
	if err := d.enter("DestroyEvent"); err != nil {
		return err
	}
	delete(d.events, e)
	return nil
}

func (d *Driver) RecordEvent(e cupool.EventHandle, s cupool.StreamHandle) error {
	defer d.mu.Unlock()
	if err := d.enter("RecordEvent"); err != nil {
		return err
	}
	q := d.streams[s]
	d.events[e] = point{q, q.submitted}
	return nil
}

func (d *Driver) QueryEvent(e cupool.EventHandle) (bool, error) {
	defer d.mu.Unlock()
	if err := d.enter("QueryEvent"); err != nil {
		return false, err
	}
	at := d.events[e]
	return at.on == nil || at.on.done >= at.at, nil
}

func (d *Driver) SyncEvent(e cupool.EventHandle) error {
	defer d.mu.Unlock()
	if err := d.enter("SyncEvent"); err != nil {
		return err
	}
	if at := d.events[e]; at.on != nil {
		at.on.done = max(at.on.done, at.at)
	}
	return nil
}

func (d *Driver) StreamWaitEvent(s cupool.StreamHandle, _ cupool.EventHandle) error {
	return d.submit("StreamWaitEvent", s)
}

func (d *Driver) Copy(_, _ cupool.Ptr, _ int64, s cupool.StreamHandle) error {
	return d.submit("Copy", s)
}

func (d *Driver) CopyIn(_ cupool.Ptr, _ []byte, s cupool.StreamHandle) error {
	return d.submit("CopyIn", s)
}

func (d *Driver) CopyOut(_ []byte, _ cupool.Ptr, s cupool.StreamHandle) error {
	return cmp.Or(d.submit("CopyOut", s), d.SyncStream(s))
}

func (d *Driver) Memset(_ cupool.Ptr, _ byte, _ int64, s cupool.StreamHandle) error {
	return d.submit("Memset", s)
}

func (d *Driver) Close() error {
	defer d.mu.Unlock()
	err := d.enter("Close")
	d.closed = true
	return err
}
