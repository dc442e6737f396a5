package hostdev

import (
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool/device"
)

// A stream runs jobs one after the other, in the order of their submission.
// Streams are independent of each other, as CUDA's non-blocking streams are;
// stream 0 exists from the start, cannot be destroyed and is otherwise one
// more such stream: it does not wait for the others, nor they for it.
//
// One goroutine at a time runs a stream's jobs: a worker, started when a job
// comes and gone when none is left, or a submitter that found the stream
// idle (see tryInline). running says that there is one.
//
// Rules, which checkLocked verifies:
//
//	T1  jobs are numbered 1, 2, … in the order of their submission: those up
//	    to taken were given to a runner, queue holds taken+1 … submitted
//	T2  job n is over when completed >= n; completed <= taken
//	T3  when running is false, queue is empty and every job is over
//	T4  a goroutine that sleeps until job n is over has set wake <= n before
//	    its last look at completed; the runner looks at wake after it raised
//	    completed; when running is false, nobody sleeps
type stream struct {
	dev       *Device
	submitted atomic.Uint64 // raised with mu held
	completed atomic.Uint64 // raised by the runner
	wake      atomic.Uint64 // the lowest job number somebody waits for

	mu        sync.Mutex
	done      sync.Cond // wake was reached; uses mu
	queue     []job
	taken     uint64   // the number of the last job that left queue or never was in it
	sleepers  []uint64 // the job numbers that goroutines in done.Wait wait for
	spare     []job    // the last batch's array, empty
	running   bool
	destroyed bool
}

// keepJobs is the largest queue, in jobs of 80 bytes, whose array is kept for
// reuse: one burst must not hold memory for ever.
const keepJobs = 4096

func newStream(d *Device) *stream {
	s := &stream{dev: d}
	s.done.L = &s.mu
	s.wake.Store(math.MaxUint64)
	return s
}

// NewStream makes a stream. It returns an error when a million exist.
func (d *Device) NewStream() (device.Stream, error) {
	if err := d.usable("NewStream"); err != nil {
		return 0, err
	}
	h := d.streams.Add(newStream(d))
	if h == 0 {
		return 0, fmt.Errorf("hostdev: NewStream: %w: too many streams", device.ErrOutOfMemory)
	}
	return device.Stream(h), nil
}

// DestroyStream waits for the stream's work and takes it away. It returns
// ErrInvalidHandle for an unknown stream and for stream 0.
func (d *Device) DestroyStream(h device.Stream) error {
	if err := d.usable("DestroyStream"); err != nil {
		return err
	}
	if h == 0 {
		return fmt.Errorf("hostdev: DestroyStream: %w: the default stream cannot be destroyed", device.ErrInvalidHandle)
	}
	s, err := d.stream("DestroyStream", h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	err = s.acceptsLocked("DestroyStream")
	s.destroyed = true
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.wait(s.submitted.Load())
	// Only now, as MemFree finds the streams it must wait for in the table.
	d.streams.Remove(uintptr(h))
	return d.usable("DestroyStream")
}

// SyncStream waits until all work submitted to the stream is done. It
// returns ErrInvalidHandle for an unknown stream.
func (d *Device) SyncStream(h device.Stream) error {
	s, err := d.stream("SyncStream", h)
	if err != nil {
		return err
	}
	s.wait(s.submitted.Load())
	if d.pooling.Load() {
		d.shrinkPools()
	}
	return d.usable("SyncStream")
}

// Launch submits a Go function to the stream, as a kernel is launched, and
// returns before it has run. A panic in f, runtime.Goexit and an access to
// memory that is not there make the device lost. f must not call the device.
// It returns ErrInvalidHandle for an unknown stream and for no function.
func (d *Device) Launch(h device.Stream, f func()) error {
	s, err := d.stream("Launch", h)
	if err != nil {
		return err
	}
	if f == nil {
		return fmt.Errorf("hostdev: Launch: %w: no function", device.ErrInvalidHandle)
	}
	_, err = s.submit("Launch", job{kind: jobFunc, fn: f})
	return err
}

// stream returns the stream of a handle, when the device is usable.
func (d *Device) stream(op string, h device.Stream) (*stream, error) {
	if err := d.usable(op); err != nil {
		return nil, err
	}
	if h == 0 {
		return d.stream0, nil
	}
	if s := d.streams.Get(uintptr(h)); s != nil {
		return s, nil
	}
	return nil, d.failure(op, fmt.Errorf("%w: %v", device.ErrInvalidHandle, h))
}

// syncAll waits for all work that was submitted so far, on every stream.
func (d *Device) syncAll() {
	d.stream0.syncSubmitted()
	for _, s := range d.streams.All() {
		s.syncSubmitted()
	}
}

// syncSubmitted takes the lock so that a submission under way is either
// counted or sees what its caller changed before (closed, a removed range).
func (s *stream) syncSubmitted() {
	s.mu.Lock()
	n := s.submitted.Load()
	s.mu.Unlock()
	s.wait(n)
}

// submit queues j and returns its number.
func (s *stream) submit(op string, j job) (uint64, error) {
	s.mu.Lock()
	if err := s.acceptsLocked(op); err != nil {
		s.mu.Unlock()
		return 0, err
	}
	n := s.submitted.Add(1)
	s.queue = append(s.queue, j)
	start := !s.running
	if start {
		s.running = true
		s.dev.workers.Add(1)
	}
	s.mustHoldLocked()
	s.mu.Unlock()
	if start {
		go s.work()
	}
	return n, nil
}

// tryInline runs j on the caller's goroutine when the stream is idle, which
// saves two goroutine switches; ran is false when it is not.
func (s *stream) tryInline(op string, j *job) (ran bool, err error) {
	if queued() {
		return false, nil
	}
	s.mu.Lock()
	if s.running {
		s.mu.Unlock()
		return false, nil
	}
	if err := s.acceptsLocked(op); err != nil {
		s.mu.Unlock()
		return false, err
	}
	s.running = true
	s.dev.workers.Add(1)
	n := s.submitted.Add(1)
	s.taken = n
	s.mu.Unlock()

	s.runFaultSafe(j)
	s.complete(n)

	s.mu.Lock()
	more := len(s.queue) > 0
	s.running = more
	s.mustHoldLocked()
	s.mu.Unlock()
	if more {
		go s.work()
	} else {
		s.dev.workers.Done()
	}
	return true, nil
}

// acceptsLocked returns an error when no job may be queued any more. closed
// is read under mu so that Close, which takes mu after setting it, waits for
// every job that got in.
func (s *stream) acceptsLocked(op string) error {
	if s.dev.closed.Load() {
		return fmt.Errorf("hostdev: %s: %w", op, device.ErrClosed)
	}
	if s.destroyed {
		return fmt.Errorf("hostdev: %s: %w: the stream was destroyed", op, device.ErrInvalidHandle)
	}
	return nil
}

// work is the worker: it runs batches of jobs until the queue is empty.
func (s *stream) work() {
	n, end := s.completed.Load(), uint64(0) // the last job run; the last of the batch
	idle := false
	defer func() {
		if !idle {
			// A launched function ended this goroutine. The device is lost, so
			// the rest of the batch would not run anyway; a new worker skips
			// what comes after it.
			s.complete(end)
			s.dev.workers.Add(1)
			go s.work()
		}
		s.dev.workers.Done()
	}()
	// A job that touches unmapped memory panics and is caught, instead of
	// taking the program down.
	debug.SetPanicOnFault(true)
	var batch []job
	for {
		if batch = s.nextBatch(batch); batch == nil {
			idle = true
			return
		}
		end = n + uint64(len(batch))
		for i := range batch {
			late()
			s.runJob(&batch[i])
			batch[i] = job{} // drop what it refers to
			n++
			s.complete(n)
			late()
		}
	}
}

// nextBatch takes the whole queue and leaves the array of the last batch in
// its place. It returns nil, and running false, when there is nothing to do.
func (s *stream) nextBatch(last []job) []job {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cap(last) > 0 && cap(last) <= keepJobs {
		s.spare = last[:0]
	}
	if len(s.queue) == 0 {
		s.running = false
		s.mustHoldLocked()
		return nil
	}
	batch := s.queue
	s.taken += uint64(len(batch))
	s.queue, s.spare = s.spare, nil
	s.mustHoldLocked()
	return batch
}

// complete says that job n is over.
func (s *stream) complete(n uint64) {
	s.completed.Store(n)
	if n < s.wake.Load() {
		return
	}
	s.mu.Lock()
	s.wake.Store(math.MaxUint64) // those that have to go on waiting set it again
	s.sleepers = s.sleepers[:0]
	s.done.Broadcast()
	s.mu.Unlock()
}

// wait returns when job n is over.
func (s *stream) wait(n uint64) {
	if s.completed.Load() >= n {
		return
	}
	s.mu.Lock()
	for {
		s.wake.Store(min(s.wake.Load(), n))
		if s.completed.Load() >= n {
			break
		}
		s.sleepers = append(s.sleepers, n)
		s.mustHoldLocked()
		s.done.Wait()
	}
	s.mu.Unlock()
}
