// Package native is the device's own stream-ordered allocator as a
// cupool.Allocator: CUDA's cuMemAllocAsync and its pools.
//
// The driver keeps the memory and orders its reuse. This package adds blocks that
// several streams use (native.go), handles that tell stale blocks from live ones
// and look-up by address (books.go), and reclaiming memory when it runs out
// (oom.go). Files share.go and socket.go share pools and blocks with other
// processes.
package native

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/blockerr"
	"github.com/cupool/cupool/internal/callstack"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/internal/sizeclass"
)

// Config sets up an Allocator. The zero value is the device's default pool, which
// keeps all freed memory.
type Config struct {
	// Pool makes a pool of its own, which Close destroys. nil: the device's
	// default pool, which other libraries use too.
	Pool *cuda.NativePoolConfig

	// ReleaseThreshold is the number of bytes that the pool keeps reserved
	// when the program waits for the device. The pool gives more than that
	// back. 0: the pool keeps everything. Negative: the pool's own value. A new
	// pool's own value is 0 bytes, which makes every allocation after a
	// synchronization slow. Close gives the default pool the value back that New found:
	// of several Allocators close the newest first.
	ReleaseThreshold int64
}

// Allocator is a cupool.Allocator over the device's stream-ordered allocator,
// for the streams of a Pool. Both may be used side by side. Every allocation
// and every free is a call to the driver. All methods are safe from several
// goroutines.
//
// Free gives a block that one stream uses back on that stream. For a block that
// other streams use, too (RecordStream), a stream of the Allocator's own waits for
// all of them on the device and frees the block. So none of the program's streams
// has to wait.
type Allocator struct {
	c        *cupool.Pool // the owner of the streams
	root     *cupool.Pool // the pool that made them; c may be a private pool of it
	onOOM    func(size int64) bool
	stacks   bool // records where blocks were allocated
	d        cuda.NativePools
	pool     cuda.NativePool
	maxSize  int64   // bytes; 0: none of its own
	before   *uint64 // the default pool's release threshold, if that was changed
	own      bool    // the pool, to be destroyed
	imported bool    // the pool is another process's
	exported bool    // guarded by mu

	mu     sync.Mutex
	books  books
	closed bool
	calls  int            // of the driver with the pool that are under way
	over   bool           // the pool is destroyed, or the last of the calls destroys it
	frees  sync.WaitGroup // under way at the driver; begun under mu before closed is set

	unifying sync.Mutex     // held around work on unifier, taken first
	unifier  *cupool.Stream // frees blocks that several streams use; nil until there is one
}

var _ cupool.Allocator = (*Allocator)(nil)

// New returns an Allocator for the streams of c. The caller closes the Allocator
// and then c. OnOutOfMemory of the Config of c holds for the Allocator, Limit and
// sizes do not. Stacks for the report of leaks are kept where the Config's History
// has SampleBytes 1. New fails with ErrNotSupported where the
// device, the driver or the kind of memory has no such pools, with a
// *cupool.ConfigError, with ErrClosed, or with the device's error.
func New(c *cupool.Pool, cfg Config) (*Allocator, error) {
	d, err := poolsOf(c)
	if err != nil {
		return nil, err
	}
	n := newAllocator(c, d)
	if cfg.Pool == nil {
		n.pool, err = d.DefaultNativePool()
	} else {
		if cfg.Pool.MaxSize < 0 {
			return nil, &cupool.ConfigError{Field: "Pool.MaxSize", Value: cfg.Pool.MaxSize, Reason: "must not be negative; 0 means the driver's limit"}
		}
		n.own, n.maxSize = true, cfg.Pool.MaxSize
		n.pool, err = d.NewNativePool(*cfg.Pool)
	}
	if err != nil {
		return nil, fmt.Errorf("cupool: native allocator on %s: %w", c.Driver().Name(), err)
	}
	if cfg.ReleaseThreshold >= 0 {
		if err := n.keep(uint64(cfg.ReleaseThreshold)); err != nil {
			return nil, errors.Join(fmt.Errorf("cupool: native allocator on %s: %w", c.Driver().Name(), err), n.destroy())
		}
	}
	return n, nil
}

func newAllocator(c *cupool.Pool, d cuda.NativePools) *Allocator {
	cfg := c.Config()
	return &Allocator{
		c: c, root: c.DefaultStream().Pool(), d: d, onOOM: cfg.OnOutOfMemory, stacks: cfg.History != nil && cfg.History.SampleBytes == 1,
		books: books{mint: cupool.NewMint()},
	}
}

func isClosed(c *cupool.Pool) bool { return errors.Is(c.Err(), cupool.ErrClosed) }

// keep sets the release threshold; 0 is everything.
func (n *Allocator) keep(bytes uint64) error {
	if bytes == 0 {
		bytes = math.MaxUint64
	}
	before, err := n.d.NativePoolAttribute(n.pool, cuda.PoolReleaseThreshold)
	if err == nil {
		err = n.d.SetNativePoolAttribute(n.pool, cuda.PoolReleaseThreshold, bytes)
	}
	if err == nil && !n.own {
		n.before = &before
	}
	return err
}

func poolsOf(c *cupool.Pool) (cuda.NativePools, error) {
	if c.Driver() == nil {
		return nil, &cupool.ConfigError{Field: "Pool", Value: nil, Reason: "a native allocator uses its streams"}
	}
	if isClosed(c) {
		return nil, fmt.Errorf("cupool: native allocator on %s: %w", c.Driver().Name(), cupool.ErrClosed)
	}
	d, ok := c.Driver().(cuda.NativePools)
	if !ok {
		return nil, fmt.Errorf("cupool: native allocator on %s: the device has no stream-ordered pools: %w", c.Driver().Name(), cupool.ErrNotSupported)
	}
	return d, nil
}

// Driver returns the device.
func (n *Allocator) Driver() cupool.Driver { return n.orZero().c.Driver() }

// DefaultStream returns the device's default stream.
func (n *Allocator) DefaultStream() *cupool.Stream { return n.orZero().c.DefaultStream() }

// NewStream makes a stream of the device, for the Pool and the Allocator.
func (n *Allocator) NewStream() (s *cupool.Stream, err error) {
	if err := n.begin("new stream"); err != nil {
		return nil, err
	}
	defer n.end(&err)
	return n.c.NewStream()
}

// Pool returns the driver's pool, for a program's own calls.
func (n *Allocator) Pool() cuda.NativePool { return n.orZero().pool }

// orZero is the Allocator, or a zero one for nil.
func (n *Allocator) orZero() *Allocator {
	if n == nil {
		return new(Allocator)
	}
	return n
}

// made fails for an Allocator that no function of this package made.
func (n *Allocator) made(op string) error {
	if n == nil || n.c == nil {
		return fmt.Errorf("cupool: native allocator: %s: it is nil, or this package did not make it: %w", op, cupool.ErrInvalidHandle)
	}
	return nil
}

// begin begins a call of the driver with its pool, which is not destroyed before end.
func (n *Allocator) begin(op string) error {
	if err := n.made(op); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.closedLocked(op); err != nil {
		return err
	}
	if err := n.c.Err(); err != nil && !errors.Is(err, cupool.ErrAsleep) { // the Pool's memory sleeps, the driver's does not
		return err
	}
	n.calls++
	return nil
}

// end ends what begin began. After Close the last one destroys the pool.
func (n *Allocator) end(err *error) {
	n.mu.Lock()
	n.calls--
	last := n.over && n.calls == 0
	n.mu.Unlock()
	if last {
		*err = errors.Join(*err, n.destroy())
	}
}

func (n *Allocator) closedLocked(op string) error {
	if n.closed || isClosed(n.c) {
		return fmt.Errorf("cupool: native allocator on %s: %s: %w", n.c.Driver().Name(), op, cupool.ErrClosed)
	}
	return nil
}

// Alloc implements cupool.Allocator. When the driver has no memory, Alloc waits for
// the work of all streams, so that the memory that they freed is free. Then it
// gives cached memory back: that of the driver's pool, of the Pool and of its
// private pools. On a pool of another process it fails with ErrNotSupported, as
// only that process allocates from it.
func (n *Allocator) Alloc(size int64, s *cupool.Stream) (b cupool.Block, err error) {
	if err := n.made("allocation"); err != nil {
		return cupool.Block{}, err
	}
	if s == nil {
		s = n.DefaultStream()
	}
	fail := func(err error, detail string) (cupool.Block, error) {
		return cupool.Block{}, &cupool.BlockError{Op: "allocation", Size: size, Stream: s.Handle(), Err: err, Detail: detail}
	}
	switch {
	case s.Pool() != n.root:
		return fail(cupool.ErrForeignStream, "the stream was made by another allocator")
	case size < 0 || size > sizeclass.MaxRequest:
		return fail(cupool.ErrInvalidSize, fmt.Sprintf("a size lies between 0 and %d bytes", int64(sizeclass.MaxRequest)))
	case n.imported && size > 0:
		return fail(cupool.ErrNotSupported, "the pool belongs to another process, which allocates and sends pointers (ImportBlock)")
	}
	if err := n.begin("allocation"); err != nil {
		return cupool.Block{}, err
	}
	defer n.end(&err)
	if err := streamUsable("allocation", s); err != nil || size == 0 {
		return cupool.Block{}, err
	}
	p, err := n.take(size, s)
	if err != nil {
		return cupool.Block{}, n.allocError(size, s, err)
	}
	return n.enter("allocation", p, size, s)
}

// streamUsable fails for a stream that was closed.
func streamUsable(op string, s *cupool.Stream) error {
	if s.Closed() {
		return fmt.Errorf("cupool: %s on %v: %w", op, s.Handle(), cupool.ErrClosed)
	}
	return nil
}

// enter puts new memory into the books.
func (n *Allocator) enter(op string, p cupool.Ptr, size int64, s *cupool.Stream) (cupool.Block, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var b *entry
	err := n.closedLocked(op) // Close may have run meanwhile
	if err == nil {
		b, err = n.books.add(p, size, s)
	}
	if err != nil {
		return cupool.Block{}, errors.Join(err, n.d.FreeAsync(p, s.Handle()))
	}
	if n.stacks {
		b.stack = new([16]uintptr)
		runtime.Callers(3, b.stack[:]) // from the caller of Alloc on
	}
	return n.books.handle(b), nil
}

// Free implements cupool.Allocator. The driver reuses the memory when the work is
// done that the program submitted before Free to the block's stream and to the
// streams that were recorded on the block. When a call of the driver fails, the
// block stays live. So it does with ErrNotSupported where several streams use it and
// one of them is captured: it is freed before the capture or after it.
func (n *Allocator) Free(h cupool.Block) error {
	if err := n.made("free"); err != nil {
		return err
	}
	if h.IsEmpty() {
		return nil
	}
	n.mu.Lock()
	b, err := n.findLocked("free", h, cupool.ErrDoubleFree)
	if err != nil {
		n.mu.Unlock()
		return err
	}
	return n.freeAndUnlock(b)
}

// freeAndUnlock takes a live block out of the books and then gives it to the
// driver. This is the order because the driver may hand the memory out at once.
func (n *Allocator) freeAndUnlock(b *entry) error {
	n.frees.Add(1)
	defer n.frees.Done()
	old := *b
	n.books.drop(b)
	n.mu.Unlock()
	if err := n.giveBack(old); err != nil {
		n.mu.Lock()
		n.books.putBack(old)
		n.mu.Unlock()
		return poolaccess.Of(n.c).DriverError(fmt.Errorf("cupool: freeing %d bytes at %v on %v: %w", old.size, old.base, old.s.Handle(), err))
	}
	return nil
}

// giveBack frees memory behind the work of all streams that use it. Closed streams
// have no work.
func (n *Allocator) giveBack(b entry) error {
	over := func(s *cupool.Stream) bool { return s.Closed() || isClosed(n.c) }
	users := slices.DeleteFunc(b.users, over)
	s := b.s
	if over(s) {
		s = n.DefaultStream()
	}
	if len(users) == 0 {
		return n.d.FreeAsync(b.base, s.Handle())
	}
	users = append(users, s)
	for _, u := range users { // one that waits for a captured stream would be of its graph
		if u.Captured() {
			return fmt.Errorf("%v uses the block and is captured: %w", u.Handle(), cupool.ErrNotSupported)
		}
	}
	n.unifying.Lock()
	defer n.unifying.Unlock()
	if n.unifier == nil {
		u, err := n.c.NewStream()
		if err != nil {
			return err
		}
		n.unifier = u
	}
	for _, u := range users {
		if err := n.unifier.WaitStream(u); err != nil && !over(u) {
			return err
		}
	}
	return n.d.FreeAsync(b.base, n.unifier.Handle())
}

// FreePtr implements cupool.Allocator.
func (n *Allocator) FreePtr(p cupool.Ptr, size int64) error {
	if err := n.made("free"); err != nil {
		return err
	}
	if p == 0 && size <= 0 {
		return nil // the empty block
	}
	n.mu.Lock()
	b, at := n.atLocked(p)
	if _, err := at.Find("free", size, true); err != nil {
		n.mu.Unlock()
		return err
	}
	return n.freeAndUnlock(b)
}

// RecordStream implements cupool.Allocator.
func (n *Allocator) RecordStream(h cupool.Block, s *cupool.Stream) error {
	if err := n.made("record stream"); err != nil {
		return err
	}
	if s == nil {
		s = n.DefaultStream()
	}
	if s.Pool() != n.root {
		return blockerr.Of("record stream", h, s, cupool.ErrForeignStream)
	}
	if h.IsEmpty() {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	b, err := n.findLocked("record stream", h, cupool.ErrUseAfterFree)
	if err != nil {
		return err
	}
	if s != b.s && !slices.Contains(b.users, s) {
		b.users = append(slices.DeleteFunc(b.users, (*cupool.Stream).Closed), s)
	}
	return nil
}

// Lookup implements cupool.Allocator.
func (n *Allocator) Lookup(p cupool.Ptr) (cupool.Block, error) {
	if err := n.made("look-up"); err != nil {
		return cupool.Block{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	_, at := n.atLocked(p)
	return at.Find("look-up", -1, false)
}

// Close frees the live blocks and lists them in a *cupool.LeakError. It waits for
// all work. It destroys a pool that New made, and leaves any other as it was. It
// also fails with the device's errors. Calls after Close fail with ErrClosed.
func (n *Allocator) Close() error {
	if err := n.made("close"); err != nil {
		return err
	}
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return fmt.Errorf("cupool: close native allocator: %w", cupool.ErrClosed)
	}
	n.closed = true
	n.mu.Unlock()
	n.frees.Wait() // what the driver refuses is live again
	n.mu.Lock()
	left := n.books.takeLive()
	n.mu.Unlock()
	var errs []error
	var leaks []cupool.Leak
	for _, b := range left {
		stack := ""
		if b.stack != nil {
			stack = callstack.Format(b.stack[:], nil)
		}
		leaks = append(leaks, cupool.Leak{Ptr: b.base, Size: b.size, Stream: b.s.Handle(), Stack: stack})
		errs = append(errs, n.giveBack(b))
	}
	errs = append(errs, ignoreClosed(n.root.Sync()))
	if n.unifier != nil {
		errs = append(errs, ignoreClosed(n.unifier.Close()))
	}
	n.mu.Lock()
	n.over = true
	last := n.calls == 0
	n.mu.Unlock()
	if last {
		errs = append(errs, n.destroy())
	}
	if len(leaks) > 0 {
		e := &cupool.LeakError{Leaks: leaks} // by address, as the books are
		for _, l := range leaks {
			e.Bytes += l.Size
		}
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

func ignoreClosed(err error) error {
	if errors.Is(err, cupool.ErrClosed) {
		return nil
	}
	return err
}

// destroy ends the Allocator's hold on the pool.
func (n *Allocator) destroy() error {
	switch {
	case n.own:
		return n.d.DestroyNativePool(n.pool)
	case n.before != nil:
		return n.d.SetNativePoolAttribute(n.pool, cuda.PoolReleaseThreshold, *n.before)
	}
	return nil
}
