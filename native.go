package cupool

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/cupool/cupool/internal/sizeclass"
)

// The device's own stream-ordered allocator.
//
// Native puts the Allocator interface over cuMemAllocAsync: the driver keeps
// the memory and orders its reuse, and what is here is what it does not do:
// blocks used by several streams, handles that tell stale from live, look-up by
// address (native_books.go), and making room when memory runs out (native_oom.go). Pools and
// their blocks are shared with other processes in native_share.go.

// NativeConfig sets up a Native. The zero value is the device's default pool,
// which keeps what is freed.
type NativeConfig struct {
	// Pool makes a pool of its own, which Close destroys. nil: the device's
	// default pool, which other libraries use too.
	Pool *NativePoolConfig

	// ReleaseThreshold is how many bytes the pool keeps reserved when the
	// program waits for the device; more goes back to it. 0: everything is
	// kept. Negative: what the pool has; a new one keeps nothing, which makes
	// every allocation after a synchronization a slow one. The default pool,
	// whoever uses it, has what it had before again after Close.
	ReleaseThreshold int64
}

// Native is an Allocator over the device's stream-ordered allocator, for the
// streams of a Caching: both may be used side by side. Every allocation and
// every free is a call to the driver. All methods are safe from several
// goroutines.
//
// Memory used by one stream is freed on it. For a block that others use too
// (RecordStream), a stream of the Native's own waits for all of them, on the
// device, and frees it, so that none of the program's streams has to wait.
type Native struct {
	c        *Caching // whose streams these are
	d        NativePools
	pool     NativePool
	maxSize  int64   // bytes; 0: none of its own
	before   *uint64 // the default pool's release threshold, if that was changed
	own      bool    // the pool, to be destroyed
	imported bool    // the pool is another process's
	exported bool    // guarded by mu

	mu     sync.Mutex
	books  nativeBooks
	closed bool

	unifying sync.Mutex // held around work on unifier, taken first
	unifier  *Stream    // frees what several streams use; nil until there is such
}

var _ Allocator = (*Native)(nil)

// NewNative returns a Native for the streams of c, which stays the caller's to
// close, after the Native. Limit, and what else the Config of c says about
// sizes, does not hold for it; OnOutOfMemory does. It fails with ErrNotSupported
// where the device, the driver or the kind of memory has no such pools, with a
// *ConfigError, ErrClosed, or what the device says.
func NewNative(c *Caching, cfg NativeConfig) (*Native, error) {
	d, err := nativePoolsOf(c)
	if err != nil {
		return nil, err
	}
	n := &Native{c: c, d: d}
	if cfg.Pool == nil {
		n.pool, err = d.DefaultNativePool()
	} else {
		if cfg.Pool.MaxSize < 0 {
			return nil, &ConfigError{Field: "Pool.MaxSize", Value: cfg.Pool.MaxSize, Reason: "must not be negative; 0 means the driver's limit"}
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
	return n.open(), nil
}

// keep sets the release threshold; 0 is everything.
func (n *Native) keep(bytes uint64) error {
	if bytes == 0 {
		bytes = math.MaxUint64
	}
	before, err := n.d.NativePoolAttribute(n.pool, PoolReleaseThreshold)
	if err == nil {
		err = n.d.SetNativePoolAttribute(n.pool, PoolReleaseThreshold, bytes)
	}
	if err == nil && !n.own {
		n.before = &before
	}
	return err
}

func nativePoolsOf(c *Caching) (NativePools, error) {
	if c == nil {
		return nil, &ConfigError{Field: "Caching", Value: nil, Reason: "a native allocator uses its streams"}
	}
	if c.closed.Load() {
		return nil, fmt.Errorf("cupool: native allocator on %s: %w", c.Driver().Name(), ErrClosed)
	}
	d, ok := c.Driver().(NativePools)
	if !ok {
		return nil, fmt.Errorf("cupool: native allocator on %s: the device has no stream-ordered pools: %w", c.Driver().Name(), ErrNotSupported)
	}
	return d, nil
}

func (n *Native) open() *Native {
	n.books.id = pools.Add(1)
	return n
}

// Driver returns the device.
func (n *Native) Driver() Driver { return n.c.Driver() }

// DefaultStream returns the device's default stream.
func (n *Native) DefaultStream() *Stream { return n.c.DefaultStream() }

// NewStream makes a stream of the device, for the Caching and the Native.
func (n *Native) NewStream() (*Stream, error) {
	if err := n.usable("new stream"); err != nil {
		return nil, err
	}
	return n.c.NewStream()
}

// Pool returns the driver's pool, for calls of one's own.
func (n *Native) Pool() NativePool { return n.pool }

func (n *Native) usable(op string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.c.closed.Load() {
		return fmt.Errorf("cupool: native allocator on %s: %s: %w", n.c.Driver().Name(), op, ErrClosed)
	}
	return n.c.lostError()
}

// Alloc implements Allocator. When the driver has no memory, the work of all
// streams is waited for, so that what they freed can be had, and cached memory
// is given back, the pool's own and that of the Caching and its pools. On a pool
// of another process it fails with ErrNotSupported: only that one allocates.
func (n *Native) Alloc(size int64, s *Stream) (Block, error) {
	if s == nil {
		s = n.DefaultStream()
	}
	fail := func(err error, detail string) (Block, error) {
		return Block{}, &BlockError{Op: "allocation", Size: size, Stream: s.handle, Err: err, Detail: detail}
	}
	switch {
	case s.c != n.c.family.root:
		return fail(ErrForeignStream, "the stream was made by another allocator")
	case size == 0:
		return Block{}, nil
	case size < 0 || size > sizeclass.MaxRequest:
		return fail(ErrInvalidSize, fmt.Sprintf("a size lies between 0 and %d bytes", int64(sizeclass.MaxRequest)))
	case n.imported:
		return fail(ErrNotSupported, "the pool belongs to another process, which allocates and sends pointers (ImportBlock)")
	}
	if err := n.usable("allocation"); err != nil {
		return Block{}, err
	}
	if err := s.usable("allocation"); err != nil {
		return Block{}, err
	}
	p, err := n.take(sizeclass.Round(size), s)
	if err != nil {
		return Block{}, n.allocError(size, s, err)
	}
	return n.enter(p, size, s)
}

// enter puts new memory into the books.
func (n *Native) enter(p Ptr, size int64, s *Stream) (Block, error) {
	n.mu.Lock()
	b, err := n.books.add(p, size, s)
	if err == nil && n.c.cfg.RecordStacks {
		b.stack = n.c.stacks.add(callers(4))
	}
	var h Block
	if err == nil {
		h = n.books.handle(b)
	}
	closed := n.closed
	n.mu.Unlock()
	switch {
	case err != nil:
		return Block{}, errors.Join(err, n.d.FreeAsync(p, s.handle))
	case closed: // meanwhile, and has not seen this block
		return Block{}, errors.Join(n.usable("allocation"), n.Free(h))
	}
	return h, nil
}

// Free implements Allocator. The driver reuses the memory when the work that
// was submitted until now, to the block's stream and those recorded on it, is
// done. When a call of the driver fails, the block stays live.
func (n *Native) Free(h Block) error {
	if h.IsEmpty() {
		return nil
	}
	n.mu.Lock()
	b, err := n.findLocked("free", h, ErrDoubleFree)
	if err != nil {
		n.mu.Unlock()
		return err
	}
	return n.freeAndUnlock(b)
}

// freeAndUnlock takes a live block out of the books and then gives it to the
// driver, in this order because it may hand the memory out again at once.
func (n *Native) freeAndUnlock(b *nativeBlock) error {
	old := *b
	b.users = nil // old has them now
	n.books.drop(b)
	n.mu.Unlock()
	err := n.giveBack(old)
	n.mu.Lock()
	if err != nil {
		n.books.putBack(old)
	} else {
		n.books.free = append(n.books.free, old.slot)
	}
	n.mu.Unlock()
	if err != nil {
		return n.c.driverError(fmt.Errorf("cupool: freeing %d bytes at %v on stream 0x%x: %w", old.size, old.base, uintptr(old.s.handle), err))
	}
	if old.stack != 0 {
		n.c.stacks.drop(old.stack, old.size)
	}
	return nil
}

// giveBack frees memory behind the work of all streams that use it. Those that
// were closed have no more.
func (n *Native) giveBack(b nativeBlock) error {
	over := func(s *Stream) bool { return s.heir.Load() != nil || n.c.closed.Load() }
	users := slices.DeleteFunc(b.users, over)
	s := b.s
	if over(s) {
		s = n.DefaultStream()
	}
	if len(users) == 0 {
		return n.d.FreeAsync(b.base, s.handle)
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
	for _, u := range append(users, s) {
		if err := n.unifier.WaitStream(u); err != nil && !over(u) {
			return err
		}
	}
	return n.d.FreeAsync(b.base, n.unifier.handle)
}

// FreePtr implements Allocator.
func (n *Native) FreePtr(p Ptr, size int64) error {
	if p == 0 && size <= 0 {
		return nil // the empty block
	}
	n.mu.Lock()
	b, err := n.lookupLocked("free", p, size, true)
	if err == nil && size >= 0 && size != b.size {
		err = &BlockError{Op: "free", Ptr: p, Size: size, Stream: b.s.handle, Err: ErrSizeMismatch, Detail: fmt.Sprintf("%d bytes were allocated there", b.size)}
	}
	if err != nil {
		n.mu.Unlock()
		return err
	}
	return n.freeAndUnlock(b)
}

// RecordStream implements Allocator.
func (n *Native) RecordStream(h Block, s *Stream) error {
	if s == nil {
		s = n.DefaultStream()
	}
	if s.c != n.c.family.root {
		return n.c.blockError("record stream", h, s, ErrForeignStream)
	}
	if h.IsEmpty() {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	b, err := n.findLocked("record stream", h, ErrUseAfterFree)
	if err != nil {
		return err
	}
	if s != b.s && !slices.Contains(b.users, s) {
		b.users = append(b.users, s)
	}
	return nil
}

// Lookup implements Allocator.
func (n *Native) Lookup(p Ptr) (Block, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b, err := n.lookupLocked("look-up", p, -1, false)
	if err != nil {
		return Block{}, err
	}
	return n.books.handle(b), nil
}

// Close frees what is live and lists it in a *LeakError, waits for all work,
// destroys the pool if it is its own, and otherwise leaves it as it was.
// Calls after Close fail with ErrClosed.
func (n *Native) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return fmt.Errorf("cupool: close native allocator: %w", ErrClosed)
	}
	n.closed = true
	left := n.books.takeLive()
	n.mu.Unlock()
	var errs []error
	var leaks []Leak
	for _, b := range left {
		stack, _ := n.c.stacks.at(b.stack).describe()
		leaks = append(leaks, Leak{Ptr: b.base, Size: b.size, Stream: b.s.handle, Stack: stack})
		errs = append(errs, n.giveBack(b))
	}
	errs = append(errs, n.c.family.syncAll())
	if n.unifier != nil {
		errs = append(errs, ignoreClosed(n.unifier.Close()))
	}
	errs = append(errs, n.destroy())
	if len(leaks) > 0 {
		errs = append(errs, newLeakError(leaks))
	}
	return errors.Join(errs...)
}

func ignoreClosed(err error) error {
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// destroy ends the Native's hold on the pool.
func (n *Native) destroy() error {
	switch {
	case n.own:
		return n.d.DestroyNativePool(n.pool)
	case n.before != nil:
		return n.d.SetNativePoolAttribute(n.pool, PoolReleaseThreshold, *n.before)
	}
	return nil
}
