package cupool

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/kernels/images"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Engine is a tensor.Engine whose tensors live in the memory of an Allocator:
// give it to tensor.New with tensor.WithEngine, and everything computed from
// such tensors stays with the engine and in its pool, also what tensor itself would
// put into Go's heap. The numbers are those of tensor.StdEng, which computes them, but
// for some that it gets wrong: docs/gorgonia.md lists them.
//
// Where the CPU cannot touch the memory, printing a tensor, its Zero and Data,
// tensor.Copy from Go's heap and some more calls below end the process with a
// fault: tensor does them on the CPU and asks no engine. In Try they fail.
//
// Pool memory is not garbage collected. FreeTensor gives single tensors back. A
// Scope gives back all that a stretch of work made, temporaries included: take it
// for a step of training. WithLifetimes has the garbage collector find what was
// forgotten, which comes late: take it as a safety net, or where tensors have no
// clear owner.
//
// An Engine may be used from several goroutines, as far as tensors may:
// operations that change a tensor's data or shape (T, Reshape, UseUnsafe)
// need it for themselves. Engines are cheap; with one for each goroutine,
// each on a stream of its own, scopes do not mix and memory pools are not
// contended for.
//
// Out of memory inside of tensor (tensor.New, Clone, MatMul) is a panic with
// an *EngineError, since tensor has no other way; Try turns it into an error.
//
// # Operations
//
// An Engine has the methods of tensor.StdEng, which package tensor calls, with its
// options, errors and numbers but for what is said at the method. Their results are in
// the pool. They fail with tensor's own errors, or with an *EngineError around
// ErrUseAfterFree, ErrNotSupported (also for a tensor that is nil, and where
// tensor.StdEng panics) or what the allocator or device says. Operations on two tensors take shapes that are the same, and those
// with a scalar s, a Go value or a tensor of one element, put it on the left where
// leftTensor is false. Comparisons return bool, or the operands' type with
// tensor.AsSameType.
//
// The methods of a nil Engine and of the zero one fail with an *EngineError around
// ErrInvalidHandle, those that return no error answer with zero values, and Memclr, for
// which tensor has neither, panics with the error.
//
// # What tensor does without asking its engine
//
//   - tensor.New with WithBacking, FromScalar or AsFortran of a backing, and
//     decoding gob, keep the data in Go's heap; Owns tells. FromHost copies it
//     into the pool.
//   - The engine of the first operand decides: Add(stdTensor, poolTensor)
//     gives a tensor of StdEng.
//   - The Norm and TensorMul methods of *tensor.Dense, tensor.Contract, and
//     MatMul, MatVecMul and Outer with tensor.WithIncr but no WithReuse lose
//     temporaries, which only a Scope gives back. Engine.Norm and
//     Engine.Contract do not, and are right where the methods are not.
//   - The Zero method of *tensor.Dense, and Outer with WithReuse, clear all the memory
//     that a view spans, with what lies in its gaps. Engine.Zero and Engine.Outer
//     do not.
//   - The Inner method of *tensor.Dense fails for a vector with gaps beside one
//     without. Engine.Inner does not.
//   - tensor.ReturnTensor does not free pool memory.
//   - tensor.New with Of a type that holds Go pointers, as strings do, puts them
//     into the pool, where the garbage collector does not look. The engine's
//     operations on such tensors fail with ErrNotSupported.
//   - Zero, T and Clone of a freed tensor do nothing, and a Clone of it is a
//     freed tensor too. To print a freed tensor prints "Inaccesible data".
//
// # Memory that the CPU cannot touch
//
// Over a Driver whose memory is not host accessible, tensors are marked
// accordingly. Where the device computes (CUDA, with device memory), operations
// on float32 and float64 run there, on the engine's stream, and return before
// they are done; results are in row-major order, and Max and Min pass NaN on.
// What has no kernel is computed on copies in host memory, and Stats counts how
// often. An operation that writes to a view writes all the memory that it spans.
//
// What tensor does on the CPU, it does in one of three ways; what to use instead
// stands behind the colon. These fail with an error of tensor's:
//
//   - At, SetAt, package native, ToMat64: the same of ToHost's copy
//   - Memset: Engine.Memset
//   - tensor.Copy to or from a view with gaps: Engine.Copy
//   - Add and the like of a tensor of Go's heap and one of the engine: FromHost
//
// Materialize of a view with gaps returns a tensor whose use fails with an
// *EngineError around ErrNotSupported: Engine.Materialize.
//
// These end the process with a fault, or fail with an *EngineError around
// ErrNotSupported in Try:
//
//   - tensor.Copy from Go's heap: Engine.Copy
//   - Zero: Engine.Zero
//   - Outer with WithReuse or WithIncr: Engine.Outer, into a zeroed tensor
//   - Norm: Engine.Norm
//   - Data, Get, Set, ScalarValue, Eq, masks by value, printing, gob, npy, CSV
//     and the other formats: the same of Engine.ToHost's copy
//
// Clones that Gorgonia makes with CloneValue lie in Go's heap.
type Engine struct {
	a          Allocator
	d          Driver
	s          *Stream
	work       *Stream // what operations are submitted to: s, but within a Fork
	accessible bool    // the CPU may touch the memory
	ops        *tensorop.Ops
	tf32       bool
	captured   *Graph // see Capture, during which nobody else uses the engine; or nil

	mems   operand.Memories
	copies operand.Copies[Block] // on their way, where the CPU cannot touch the memory

	pooled  atomic.Bool           // ScopeIn was called
	scopeMu sync.Mutex            // guards the scopes' fields
	scope   atomic.Pointer[Scope] // the innermost one; nil: none

	lifetimes bool        // else tensors live until they are freed
	freeLater func(Block) // of the allocator, with lifetimes

	lost atomic.Pointer[EngineError] // the first error that could not be returned
}

// EngineOption is an option of NewEngine. A nil one changes nothing.
type EngineOption func(*Engine)

// WithStream makes the engine allocate and work on s, a stream of its
// allocator; nil is the default stream, which is the default.
func WithStream(s *Stream) EngineOption {
	return func(e *Engine) { e.s = s }
}

// WithTF32 lets a GPU round the operands of products of float32 to TF32, 10 bits
// of mantissa instead of 23, which its tensor cores multiply much faster. Off
// without it. Devices that do not have it, or do not compute, ignore it.
func WithTF32() EngineOption {
	return func(e *Engine) { e.tf32 = true }
}

// NewEngine returns an engine whose tensors live in a's memory. It fails with
// ErrInvalidConfig without an allocator, and with an *EngineError around
// ErrForeignStream when the stream is not one of a's, or ErrClosed when it was closed. The engine holds nothing that would have to be
// closed.
func NewEngine(a Allocator, opts ...EngineOption) (*Engine, error) {
	if isNoAllocator(a) {
		return nil, &ConfigError{Field: "Allocator", Value: nil, Reason: "an engine needs one"}
	}
	e := &Engine{a: a, d: a.Driver()}
	for _, o := range opts {
		if o != nil {
			o(e)
		}
	}
	if e.s == nil {
		e.s = a.DefaultStream()
	}
	e.work = e.s
	e.accessible = e.d.HostAccessible()
	if err := e.startLifetimes(); err != nil {
		return nil, err
	}
	if _, err := a.Alloc(0, e.s); err != nil {
		return nil, &EngineError{Op: "new engine", Err: err}
	}
	if err := e.findOps(); err != nil {
		return nil, err
	}
	return e, nil
}

// findOps has operations computed by the engine's device, if that has kernels.
func (e *Engine) findOps() error {
	m := (*opMemory)(e)
	e.ops = tensorop.New(m, nil)
	d, ok := e.d.(gpu.Device)
	if !ok {
		return nil
	}
	err := d.LoadKernels(images.Of)
	switch {
	case errors.Is(err, ErrNotSupported):
		return nil
	case err != nil:
		return engineError("new engine", err)
	}
	e.ops = tensorop.New(m, gpu.New(m, d, e.tf32))
	return nil
}

// Allocator returns where the memory comes from.
func (e *Engine) Allocator() Allocator {
	if e.isNone() {
		return nil
	}
	return e.a
}

// Stream returns the stream that the engine works on. What a program submits
// to it itself comes before what the engine does later.
func (e *Engine) Stream() *Stream {
	if e.isNone() {
		return nil
	}
	return e.s
}

// NonStdAlloc tells tensor to call Alloc.
func (e *Engine) NonStdAlloc() {}

// AllocAccessible reports whether the CPU may touch the engine's memory.
func (e *Engine) AllocAccessible() bool { return !e.isNone() && e.accessible }

// WorksWith returns true: all data orders will do.
func (e *Engine) WorksWith(tensor.DataOrder) bool { return true }

// String names the engine's device.
func (e *Engine) String() string {
	if e.isNone() {
		return "cupool engine on no device"
	}
	return fmt.Sprintf("cupool engine on %s", e.d.Name())
}

// EngineError is an Engine's call that failed. tensor panics with it where
// it cannot return it.
type EngineError struct {
	Op  string // what was tried
	Err error  // why it failed
}

func (e *EngineError) Error() string { return fmt.Sprintf("cupool: tensor %s: %v", e.Op, e.Err) }

// Unwrap returns the reason.
func (e *EngineError) Unwrap() error { return e.Err }

func engineError(op string, err error) error {
	if err == nil {
		return nil
	}
	return &EngineError{Op: op, Err: err}
}

var errNoFunction = fmt.Errorf("the function is nil: %w", ErrInvalidHandle)

// Try calls f and returns its error, or the *EngineError that tensor panicked
// with in f: an allocation or a copy that failed. Where f touches an address
// that the CPU cannot touch, which ends the process without Try, it returns an
// *EngineError around ErrNotSupported with the address; f may have done a part
// of its work then. That holds for f's goroutine alone. Other panics go on. A nil f
// is an *EngineError around ErrInvalidHandle.
func Try(f func() error) (err error) {
	if f == nil {
		return engineError("try", errNoFunction)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			perr, _ := p.(error)
			if fault, at := p.(interface{ Addr() uintptr }); at {
				perr = engineError("access", fmt.Errorf("the CPU cannot touch address %v, only a copy (ToHost, FromHost, Copy): %w", Ptr(fault.Addr()), ErrNotSupported))
			}
			if !isOwn(perr) {
				panic(p)
			}
			err = perr
		}
	}()
	return f()
}

// isOwn reports whether an error is an engine's.
func isOwn(err error) bool {
	var own *EngineError
	return errors.As(err, &own)
}

// Sync waits until all work on the engine's stream is done. It returns the
// device's error, or else the first failure since the last Sync of a call
// whose error tensor drops (Memclr, Transpose). Until then operations on
// copies, ToHost and FromHost fail with that error too, rather than work on
// wrong data.
func (e *Engine) Sync() error {
	if err := e.made("sync"); err != nil {
		return err
	}
	if err := e.s.Sync(); err != nil {
		return engineError("sync", err)
	}
	if err := e.lost.Swap(nil); err != nil {
		return err
	}
	return nil
}

// pendingError returns the error that the next Sync will return.
func (e *Engine) pendingError() error {
	if err := e.lost.Load(); err != nil {
		return err
	}
	return nil
}

// lose keeps an error that has to be returned later.
func (e *Engine) lose(op string, err error) {
	if err != nil {
		own, ok := err.(*EngineError)
		if !ok {
			own = &EngineError{Op: op, Err: err}
		}
		e.lost.CompareAndSwap(nil, own)
	}
}

// hostReady waits until the CPU may touch the engine's memory: memory is
// handed out in stream order, so work of the stream that came before, also
// with memory freed since, may still be running. It asks the device at once;
// that costs next to nothing where the stream is idle.
func (e *Engine) hostReady() error {
	if !e.accessible {
		return nil
	}
	return e.awaitStream()
}

func (e *Engine) awaitStream() error {
	if c := &e.s.calls; c.Lasts() { // what Do does, without the cost of a function value
		return engineError("sync", c.Submitted("synchronize", e.syncStream()))
	}
	return engineError("sync", e.s.calls.Do("synchronize", e.syncStream))
}

func (e *Engine) syncStream() error {
	if e.s.root.dev.calls.Patience > 0 {
		return e.s.calls.Await()
	}
	return e.d.SyncStream(e.s.handle)
}

// Alloc implements tensor.Engine: size bytes of zeroed pool memory, as
// tensor.New needs it. The returned object is valid until the memory is
// freed. Size 0 is legal. It fails with an *EngineError around what the
// allocator or the device says, and around ErrNotSupported for tensor.New outside
// of a scope where the engine is WithLifetimes.
func (e *Engine) Alloc(size int64) (tensor.Memory, error) {
	if err := e.made("alloc"); err != nil {
		return nil, err
	}
	if e.lifetimes {
		if err := e.checkMaker(size); err != nil {
			return nil, err
		}
	}
	var by operand.Copier
	if !e.accessible && size > 0 {
		switch by = operand.FindCopier(); by {
		case operand.CloneValue, operand.Outer:
			return e.copies.InHeap(size), nil
		}
	}
	b, err := e.alloc(size)
	if err != nil {
		return nil, err
	}
	if b.IsEmpty() {
		return &noMemory, nil
	}
	if err := e.clear(b.ptr, b.size, !e.accessible || b.size >= zeroOnStream); err != nil {
		return nil, errors.Join(err, e.free(b))
	}
	e.enter(b, nil)
	if by == operand.Materialize {
		e.copies.Expect(b, e.isLive)
	}
	return e.mems.Set(b.pool(), uint32(b.id()), b.ptr, b.size), nil
}

// Free implements tensor.Engine; tensor itself never calls it. size is what
// was allocated, in bytes. It fails with an *EngineError around
// ErrDoubleFree, ErrForeignPointer, ErrInteriorPointer, ErrSizeMismatch or
// ErrInvalidSize, and then has changed nothing.
func (e *Engine) Free(mem tensor.Memory, size int64) error {
	if err := e.made("free"); err != nil {
		return err
	}
	p, n := operand.Extent(mem)
	switch {
	case size < 0:
		return engineError("free", &BlockError{Op: "free", Ptr: p, Size: -1, Err: ErrInvalidSize, Detail: fmt.Sprintf("no memory has %d bytes", size)})
	case n == 0 && size == 0:
		return nil
	case n != size:
		return engineError("free", &BlockError{Op: "free", Ptr: p, Size: size, Err: ErrSizeMismatch, Detail: fmt.Sprintf("the memory has %d bytes", n)})
	}
	if c, ok := e.a.(*Pool); ok { // mem mostly names its block, which takes no search by address
		if m, ok := mem.(*operand.Memory); ok && m.Allocator == c.id && c.heaps.freeHomed(block.ID(m.Slot), m.Ptr, size) {
			return nil
		}
	}
	return engineError("free", e.freePtr(p, size))
}

// Memcpy implements tensor.Engine: it copies the bytes of src, or as many as
// dst has room for. Either may be the engine's memory or a part of it, any
// other memory of the host, or a tensor; addresses decide. It fails with an
// *EngineError around ErrUseAfterFree, ErrInvalidRange, ErrNotSupported for a
// tensor in memory that only another engine's device can touch, or what the
// device says.
func (e *Engine) Memcpy(dst, src tensor.Memory) error {
	if err := e.made("memcpy"); err != nil {
		return err
	}
	d, nd := operand.Extent(dst)
	s, ns := operand.Extent(src)
	n := min(nd, ns)
	for _, mem := range [...]tensor.Memory{dst, src} {
		if err := e.checkMemory(mem); err != nil {
			return engineError("memcpy", err)
		}
	}
	if n == 0 {
		return nil
	}
	defer runtime.KeepAlive(dst)
	defer runtime.KeepAlive(src)
	if e.copies.Awaited() {
		from, _ := e.lookup(s) // the empty Block where there is none
		if e.copies.Misses(from) {
			return engineError("memcpy", e.errNotMaterialized())
		}
		to, _ := e.lookup(d)
		e.copies.Arrive(d, to)
	}
	devDst, err := e.onDevice(d, n)
	if err != nil {
		return engineError("memcpy", err)
	}
	if !devDst {
		return e.read(operand.Bytes(d, n), s)
	}
	devSrc, err := e.onDevice(s, n)
	switch {
	case err != nil:
		return engineError("memcpy", err)
	case devSrc:
		return engineError("memcpy", e.copyWithin(d, s, n))
	}
	return e.write(d, operand.Bytes(s, n))
}

// Memset implements tensor.Engine: it sets every element of mem to val. val
// has the type of the elements where mem is a tensor, and gives their type
// where it is not. It fails with an *EngineError around ErrNotSupported for
// a type that is not fixed-size data, ErrSizeMismatch for a type that does
// not fit, or what Memcpy fails with.
func (e *Engine) Memset(mem tensor.Memory, val interface{}) error {
	if err := e.made("memset"); err != nil {
		return err
	}
	if d, ok := mem.(*tensor.Dense); ok {
		if o := e.stranger(d); o != nil {
			return o.Memset(mem, val)
		}
	}
	p, n := operand.Extent(mem)
	defer runtime.KeepAlive(mem)
	pattern, err := operand.Pattern(mem, val)
	if err == nil {
		err = e.checkMemory(mem)
	}
	if err != nil || n == 0 {
		return engineError("memset", err)
	}
	if d, ok := mem.(*tensor.Dense); ok {
		if ok, err := e.ops.Fill(d, val, pattern); ok {
			return err
		}
	}
	if n%int64(len(pattern)) != 0 {
		return engineError("memset", &BlockError{Op: "memset", Ptr: p, Size: n, Err: ErrSizeMismatch, Detail: fmt.Sprintf("elements have %d bytes", len(pattern))})
	}
	if bytes.Count(pattern, []byte{0}) == len(pattern) {
		return e.zero(p, n)
	}
	return e.fill(p, n, pattern)
}

// Memclr implements tensor.Engine: it zeroes the memory. As it cannot return
// an error, the next Sync does.
func (e *Engine) Memclr(mem tensor.Memory) {
	if err := e.made("memclr"); err != nil {
		panic(err)
	}
	if d, ok := mem.(*tensor.Dense); ok {
		e.lose("memclr", e.Zero(d))
		return
	}
	p, n := operand.Extent(mem)
	e.lose("memclr", e.zero(p, n))
	runtime.KeepAlive(mem)
}

// Accessible implements tensor.Engine: it returns mem once the CPU may touch
// it. It fails with an *EngineError around ErrNotSupported when the CPU never
// may (ToHost copies), or ErrUseAfterFree.
func (e *Engine) Accessible(mem tensor.Memory) (tensor.Memory, error) {
	if err := e.made("access"); err != nil {
		return nil, err
	}
	p, n := operand.Extent(mem)
	if err := e.checkMemory(mem); err != nil {
		return nil, engineError("access", err)
	}
	if n == 0 {
		return mem, nil
	}
	dev, err := e.onDevice(p, n)
	switch {
	case err != nil:
		return nil, engineError("access", err)
	case dev:
		return nil, engineError("access", fmt.Errorf("the CPU cannot touch the memory of %s, only a copy (ToHost): %w", e.d.Name(), ErrNotSupported))
	}
	if err := e.hostReady(); err != nil {
		return nil, err
	}
	return mem, nil
}

// EngineStats say what the host computed in the device's stead.
type EngineStats struct {
	Fallbacks int64            // operations on memory that the CPU cannot touch, computed on copies of it
	ByOp      map[string]int64 // those, by the operation's name
	Bytes     int64            // copied for them, and by ToHost and FromHost
}

// Stats returns the engine's counts. All are zero over a device whose memory
// is host accessible.
func (e *Engine) Stats() (s EngineStats) {
	s.Fallbacks, s.ByOp, s.Bytes = e.std().Counts()
	return s
}
